import { EventEmitter } from "node:events";
import type { Io } from "../../src/cli/command.ts";
import { runCli } from "../../src/cli/index.ts";

/** Runs a command line here, without a process of its own: for commands that read, write and end. */
export async function cliInProcess(
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  more: Partial<Io> = {},
): Promise<{ code: number; stdout: string; stderr: string }> {
  let [stdout, stderr] = ["", ""];
  const code = await runCli(args, {
    env,
    cwd: process.cwd(),
    signals: new EventEmitter(),
    out: (text) => void (stdout += `${text}\n`),
    err: (text) => void (stderr += `${text}\n`),
    setEnv: () => undefined,
    exit: () => undefined,
    ...more,
  });
  return { code, stdout, stderr };
}
