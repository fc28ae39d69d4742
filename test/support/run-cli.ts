import { spawn, type ChildProcess } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";
import type { Io } from "../../src/cli/command.ts";
import { runCli as runInProcess } from "../../src/cli/index.ts";
import { program } from "./programs.ts";

/** Runs a command line here, without a process of its own: for commands that read, write and end. */
export async function cliInProcess(
  args: readonly string[],
  env: Readonly<Record<string, string>>,
  more: Partial<Io> = {},
): Promise<{ code: number; stdout: string; stderr: string }> {
  let [stdout, stderr] = ["", ""];
  const code = await runInProcess(args, {
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

export interface CliProcess {
  readonly child: ChildProcess;
  readonly stdout: string;
  readonly stderr: string;
  /** Resolves when the process has ended. */
  readonly ended: Promise<{
    code: number | null;
    signal: NodeJS.Signals | null;
    stdout: string;
    stderr: string;
  }>;
  /** Resolves when standard output or standard error holds the text; rejects when the process ends without it. */
  waitForOutput(text: string): Promise<void>;
}

export interface CliOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
}

const main = new URL("../../src/cli/main.ts", import.meta.url);
const loader = import.meta.resolve("tsx");

/** Starts the command line from its sources, in an environment with nothing of ours but what is given. */
export function startCli(args: readonly string[], options: CliOptions = {}): CliProcess {
  return start(["--import", loader, "--conditions=sagabox:source", fileURLToPath(main), ...args], options);
}

/** Starts the compiled command line, which starts faster: for commands that load no user code, in tests with PostgreSQL. */
export function runBuiltCli(args: readonly string[], options: CliOptions = {}): CliProcess["ended"] {
  return start([program(main), ...args], options).ended;
}

function start(words: readonly string[], { env = {}, cwd = process.cwd() }: CliOptions): CliProcess {
  const child = spawn(process.execPath, words, {
    cwd,
    env: { PATH: process.env["PATH"], HOME: process.env["HOME"], ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let [stdout, stderr] = ["", ""];
  child.stdout.setEncoding("utf8").on("data", (text: string) => (stdout += text));
  child.stderr.setEncoding("utf8").on("data", (text: string) => (stderr += text));
  const ended = once(child, "close").then(([code, signal]) => ({
    code: code as number | null,
    signal: signal as NodeJS.Signals | null,
    stdout,
    stderr,
  }));
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  const waitForOutput = (text: string): Promise<void> =>
    new Promise((resolve, reject) => {
      const look = (): void => {
        if (stdout.includes(text) || stderr.includes(text)) resolve();
      };
      child.stdout.on("data", look);
      child.stderr.on("data", look);
      void ended.then(() =>
        reject(new Error(`Ended without printing ${JSON.stringify(text)}:\n${stdout}${stderr}`)),
      );
      look();
    });
  return {
    child,
    ended,
    waitForOutput,
    get stdout() {
      return stdout;
    },
    get stderr() {
      return stderr;
    },
  };
}

export function runCli(args: readonly string[], options: CliOptions = {}): CliProcess["ended"] {
  return startCli(args, options).ended;
}
