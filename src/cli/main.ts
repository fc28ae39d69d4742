#!/usr/bin/env node
import type { Io } from "./command.ts";
import { safeLines } from "./print.ts";
import { runCli } from "./run-cli.ts";
import { createTerminal } from "./terminal.ts";

// A reader such as `head` may close the pipe early. That is not a failure.
process.stdout.on("error", () => process.exit(0));
process.stderr.on("error", () => undefined);

const io: Io = {
  env: process.env,
  cwd: process.cwd(),
  signals: process,
  out: (text) => void process.stdout.write(`${text}\n`),
  err: (text) => void process.stderr.write(`${safeLines(text)}\n`),
  setEnv: (name, value) => {
    process.env[name] = value;
  },
  exit: (code) => process.exit(code),
  terminal: createTerminal(process),
};

const code = await runCli(process.argv.slice(2), io);
// An application may leave servers and pools open, which would keep the process alive.
process.stdout.write("", () => process.stderr.write("", () => process.exit(code)));
