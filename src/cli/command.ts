import { parseArgs } from "node:util";
import { findNearest, type Environment } from "../options/index.ts";
import type { SignalSource } from "./stop-signals.ts";

/** Everything a command may touch of the process it runs in. */
export interface Io {
  readonly env: Environment;
  readonly cwd: string;
  readonly signals: SignalSource;
  out(text: string): void;
  err(text: string): void;
  /** Gives the modules loaded from here on another value of a variable. */
  setEnv(name: string, value: string): void;
  /** Ends the process at once. */
  exit(code: number): void;
  /** Absent where no person sits in front of it. */
  readonly terminal?: Terminal;
}

/** The screen and the keyboard of a person. */
export interface Terminal {
  /** Standard output is on the screen: it may be cleared and drawn again. */
  readonly out: boolean;
  /** Writes over the last line of standard error; null takes it away. Absent where that is not on the screen. */
  readonly draw?: (line: string | null) => void;
  /** Asks a question and waits for a line. Undefined when there was none (Ctrl-C, Ctrl-D). Absent without a keyboard. */
  readonly ask?: (question: string) => Promise<string | undefined>;
}

export interface CommandOption {
  readonly type: "string" | "boolean";
  readonly help: string;
  /** What stands for the value in the help text. */
  readonly value?: string;
  /** Makes the value, a number, optional: this one counts when the option stands alone. */
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
  /** What may follow its name: list, show … Absent where it does one thing. */
  readonly actions?: readonly string[];
  readonly details: string;
  readonly options: Readonly<Record<string, CommandOption>>;
  run(input: CommandInput, io: Io): Promise<number>;
}

/** The command line cannot be understood; nothing was done. */
export class UsageError extends Error {}

const helpOption: CommandOption = { type: "boolean", help: "Show this text." };

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

/** Gives options that stand alone, where others would have a number, the value that means so. */
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
  const hint = suggestion === undefined ? `Known are: ${known.join(", ")}.` : `Did you mean ${suggestion}?`;
  return `"sagabox ${command.name}" has no option ${unknown}. ${hint}`;
}

// Node tells it in several lines, and speaks of its own placeholders.
function valueProblem(command: Command, message: string): string {
  const option = /--[a-z-]+/.exec(message)?.[0] ?? "an option";
  if (message.includes("does not take an argument")) {
    return `"sagabox ${command.name}" takes no value for ${option}.`;
  }
  const dash = message.includes("ambiguous")
    ? ` One that begins with a dash is given as ${option}=<value>.`
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

export function portValue(input: CommandInput, name = "port", least = 0): number | undefined {
  const text = textValue(input, name);
  if (text === undefined) return undefined;
  const port = /^\d{1,5}$/.test(text) ? Number(text) : Number.NaN;
  if (!(port >= least && port <= 65_535)) {
    throw new UsageError(`--${name} must be a whole number from ${least} to 65535.`);
  }
  return port;
}
