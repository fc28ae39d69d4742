import type { Phase } from "../saga/index.ts";
import { rejectUnknownKeys } from "../options/index.ts";
import { CrashRunner } from "./crash-runner.ts";
import type { CrashReport, CrashTest } from "./crash-test.ts";
import { assertTestEnvironment } from "./assert-test-environment.ts";

const KEYS = ["database", "schema", "makeBus", "saga", "input", "drive", "check", "within"];

/**
 * Runs the saga once to count its transitions, then once for each of them with a process that dies right before it is
 * committed, and once with one that dies right after. Another process takes over. Each run has to end as the first did.
 */
export async function crashAtEveryStep<I, R, P extends Phase>(
  options: CrashTest<I, R, P>,
): Promise<CrashReport> {
  assertTestEnvironment("crashAtEveryStep()");
  rejectUnknownKeys("crashAtEveryStep", options, KEYS);
  const runner = new CrashRunner(options);
  try {
    const { transitions, status } = await runner.run();
    let crashes = 0;
    for (let transition = 1; transition <= transitions; transition += 1) {
      for (const when of ["before", "after"] as const) {
        if ((await runner.run({ crash: { transition, when }, end: status })).crashed) crashes += 1;
      }
    }
    return { transitions, crashes, status };
  } finally {
    await runner.close();
  }
}
