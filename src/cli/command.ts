import { parseArgs } from "node:util";
import { type Environment, findNearest } from "../options/index.ts";
import type { SignalSource } from "./stop-signals.ts";

/** The parts of the process that a command may use. Tests replace them. */
export interface Io {
  readonly env: Environment;
  readonly cwd: string;
  readonly signals: SignalSource;
  out(text: string): void;
  err(text: string): void;
  /** Sets an environment variable for modules that are loaded later. */
  setEnv(name: string, value: string): void;
  /** Exits the process immediately. */
  exit(code: number): void;
  /** Absent when the command runs without a terminal. */
  readonly terminal?: Terminal;
}

/** The terminal that the command runs in. */
export interface Terminal {
  /** True if standard output is a terminal, so the screen may be cleared and redrawn. */
  readonly out: boolean;
  /** The width of standard output in characters. Absent if standard output is not a terminal. */
  readonly columns?: number | undefined;
  /** Overwrites the last line of standard error; null erases it. Absent if standard error is not a terminal. */
  readonly draw?: (line: string | null) => void;
  /** Asks a question and resolves with the answer, or with undefined after Ctrl-C or Ctrl-D. Absent without a keyboard. */
  readonly ask?: (question: string) => Promise<string | undefined>;
}

export interface CommandOption {
  readonly type: "string" | "boolean";
  readonly help: string;
  /** Placeholder of the value in the help text, such as `<name>`. Absent for flags. */
  readonly value?: string;
  /** Makes the (numeric) value optional: the value used when the option is given without one. */
  readonly alone?: string;
}

export interface CommandInput {
  readonly values: Readonly<Record<string, string | boolean | undefined>>;
  readonly positionals: readonly string[];
}

export interface Command {
  readonly name: string;
  readonly summary: string;
  readonly usage: readonly string[];
  /** Names of its actions (list, show …). Absent if the command has none. */
  readonly actions?: readonly string[];
  readonly details: string;
  readonly options: Readonly<Record<string, CommandOption>>;
  run(input: CommandInput, io: Io): Promise<number>;
}

/** The command line is invalid and nothing was done. `runCli` exits with code 2. */
export class UsageError extends Error {}

const helpOption: CommandOption = { type: "boolean", help: "Print this help." };

export function parseCommand(command: Command, args: readonly string[]): CommandInput {
  const options = Object.fromEntries(
    Object.entries({ ...command.options, help: helpOption }).map(([name, { type }]) => [name, { type }]),
  );
  try {
    const { values, positionals } = parseArgs({
      args: addDefaultValues(command, args),
      options,
      allowPositionals: true,
      strict: true,
    });
    return { values: values as CommandInput["values"], positionals };
  } catch (error) {
    throw new UsageError(parseProblem(command, error as NodeJS.ErrnoException));
  }
}

/** Inserts the default number after options such as --watch that are given without one. */
function addDefaultValues(command: Command, args: readonly string[]): string[] {
  const end = args.includes("--") ? args.indexOf("--") : args.length;
  return args.map((arg, index) => {
    const alone = arg.startsWith("--") && index < end ? command.options[arg.slice(2)]?.alone : undefined;
    if (alone === undefined || /^\d/.test(args[index + 1] ?? "")) return arg;
    return `${arg}=${alone}`;
  });
}

function parseProblem(command: Command, { code, message }: NodeJS.ErrnoException): string {
  const unknown = code === "ERR_PARSE_ARGS_UNKNOWN_OPTION" ? /'(-[^']*)'/.exec(message)?.[1] : undefined;
  if (unknown === undefined) return valueProblem(command, message);
  const known = [...Object.keys(command.options), "help"].map((name) => `--${name}`);
  const suggestion = findNearest(unknown, known);
  const hint = suggestion === undefined ? `Known: ${known.join(", ")}.` : `Did you mean ${suggestion}?`;
  return `"sagabox ${command.name}" has no option ${unknown}. ${hint}`;
}

// Node's own text spans several lines and uses its own placeholders, so the message is rewritten.
function valueProblem(command: Command, message: string): string {
  const option = /--[a-z-]+/.exec(message)?.[0] ?? "an option";
  if (message.includes("does not take an argument")) {
    return `"sagabox ${command.name}" takes no value for ${option}.`;
  }
  const dash = message.includes("ambiguous")
    ? ` Write a value that begins with a dash as ${option}=<value>.`
    : "";
  return `"sagabox ${command.name}" needs a value for ${option}.${dash}`;
}

export function commandHelp(command: Command): string {
  const options = Object.entries({ ...command.options, help: helpOption }).map(
    ([name, { value, help }]) => [`--${name}${value === undefined ? "" : ` ${value}`}`, help] as const,
  );
  const width = Math.max(...options.map(([flag]) => flag.length));
  return [
    command.summary,
    "",
    ...command.usage.map((line, index) => `${index === 0 ? "Usage:" : "      "} sagabox ${line}`),
    "",
    command.details,
    "",
    "Options:",
    ...options.map(([flag, help]) => `  ${flag.padEnd(width)}  ${help}`),
  ].join("\n");
}

export function textValue({ values }: CommandInput, name: string): string | undefined {
  const value = values[name];
  return typeof value === "string" ? value : undefined;
}

export function portValue(input: CommandInput, name = "port", min = 0): number | undefined {
  const text = textValue(input, name);
  if (text === undefined) return undefined;
  const port = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
  if (!(port >= min && port <= 65_535)) {
    throw new UsageError(`--${name} must be a whole number from ${min} to 65535.`);
  }
  return port;
}

/** Exit codes that scripts may rely on. The reference page is generated from `exitCodes`. */
export const DONE = 0;
export const FAILED = 1;
export const USAGE_ERROR = 2;
export const FOUND = 3;
export const STOPPED = 4;

export const exitCodes: readonly { readonly code: number; readonly meaning: string }[] = [
  { code: DONE, meaning: "Success. A check found no problem." },
  {
    code: FAILED,
    meaning: "Failed or refused: no database, missing migration or permission, unknown id.",
  },
  { code: USAGE_ERROR, meaning: "Invalid command line or configuration. Nothing was done." },
  { code: FOUND, meaning: "A check found something that an operator should look at." },
  {
    code: STOPPED,
    meaning:
      "Incomplete: stopped by Ctrl-C or by its own rules, or part of the check was not possible. The output says what was done.",
  },
];
