import type { Capabilities } from "../transport/index.ts";
import type { ExerciseCase, ExerciseCases } from "./exercise-case.ts";
import { deliveryCases } from "./exercise-deliveries.ts";
import { groupCases } from "./exercise-groups.ts";
import { Stage, type TransportUnderTest } from "./exercise-stage.ts";

export type { TransportUnderTest } from "./exercise-stage.ts";

const exerciseCases: ExerciseCases = { ...deliveryCases, ...groupCases };

/** The little that is needed of a test runner: `{ test }` of vitest, `{ test: it }` of Mocha or node:test will do. */
export interface TestRunner {
  readonly test: (name: string, run: () => Promise<void>) => void;
}

export interface ExerciseOptions {
  /** What the transport claims; what it does not claim is not asked of it. */
  readonly capabilities: Capabilities;
  /** Whether `abandon` is there, so that a process can die alone. Default false. */
  readonly abandons?: boolean;
  /** Cases left out, each with the reason why. */
  readonly skip?: Readonly<Record<string, string>>;
}

export interface SkippedCase {
  readonly name: string;
  readonly reason: string;
}

/**
 * The conformance suite of transports: what sagabox relies on, case by case, each on a transport of its own. Returns
 * what was left out and why, so that a test can look at that too.
 */
export function exerciseTransport(
  runner: TestRunner,
  makeTransport: () => Promise<TransportUnderTest>,
  options: ExerciseOptions,
): readonly SkippedCase[] {
  assertKnown(Object.keys(options.skip ?? {}));
  const skipped: SkippedCase[] = [];
  for (const [name, exercise] of Object.entries(exerciseCases)) {
    const reason = options.skip?.[name] ?? notClaimed(exercise, options);
    if (reason !== undefined) skipped.push({ name, reason });
    else runner.test(name, () => play(exercise, makeTransport));
  }
  return skipped;
}

async function play(exercise: ExerciseCase, makeTransport: () => Promise<TransportUnderTest>): Promise<void> {
  const under = await makeTransport();
  try {
    await under.transport.open();
    await exercise.run(new Stage(under));
  } finally {
    await under.close();
  }
}

function notClaimed(exercise: ExerciseCase, options: ExerciseOptions): string | undefined {
  const claimed = exercise.unless?.find((claim) => options.capabilities[claim] !== false);
  if (claimed !== undefined) return `it claims ${claimed}`;
  const missing = exercise.needs?.find((need) =>
    need === "abandon" ? options.abandons !== true : options.capabilities[need] === false,
  );
  if (missing === undefined) return undefined;
  return missing === "abandon" ? "no process of it can die alone" : `it does not claim ${missing}`;
}

function assertKnown(names: readonly string[]): void {
  const unknown = names.find((name) => !(name in exerciseCases));
  if (unknown !== undefined) throw new Error(`There is no case "${unknown}" to leave out.`);
}
