import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";
import { program } from "./program.ts";

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

/** The same compiled, which is sooner there: for commands that load nothing of a user's, in tests with PostgreSQL. */
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
