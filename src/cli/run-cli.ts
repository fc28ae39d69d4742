import { isSagaboxError, findNearest, type ErrorCode } from "../errors/index.ts";
import { explainPostgresError } from "../storage/index.ts";
import { PACKAGE_VERSION } from "../telemetry/index.ts";
import { commandHelp, parseCommand, UsageError, type Io } from "./command.ts";
import { allCommands, loadCommand, commandNames } from "./commands.ts";
import { exitCodes, FAILED, USAGE_ERROR } from "./exit-codes.ts";
import { fullErrorText } from "./print.ts";

/** Runs one command line and returns its exit code. Prints every failure on standard error; never rejects. */
export async function runCli(args: readonly string[], io: Io): Promise<number> {
  try {
    return await dispatch(args, io);
  } catch (error) {
    const misused = error instanceof UsageError || isMisuse(error);
    io.err(`sagabox: ${fullErrorText(explainError(error, args, io), wantsStack(io))}`);
    if (error instanceof UsageError) io.err(`Run \`sagabox ${helpCommand(args)}\` for help.`);
    return misused ? USAGE_ERROR : FAILED;
  }
}

async function dispatch([name = "help", ...rest]: readonly string[], io: Io): Promise<number> {
  if (name === "version" || name === "--version" || name === "-v") {
    io.out(PACKAGE_VERSION);
    return 0;
  }
  if (name === "help" || name === "--help" || name === "-h") {
    io.out(rest[0] === undefined ? await overview() : commandHelp(await loadCommand(rest[0])));
    return 0;
  }
  if (name.startsWith("-")) throw new UsageError(flagProblem(name));
  const command = await loadCommand(name);
  if (rest.includes("-h")) return dispatch(["help", name], io);
  const input = parseCommand(command, rest);
  if (input.values["help"] === true) return dispatch(["help", name], io);
  return command.run(input, io);
}

function flagProblem(flag: string): string {
  const known = ["--help", "--version"];
  const suggestion = findNearest(flag, known);
  const hint =
    suggestion === undefined
      ? `Known: ${known.join(", ")}. Options of a command follow its name.`
      : `Did you mean ${suggestion}?`;
  return `There is no option ${flag}. ${hint}`;
}

function helpCommand([name]: readonly string[]): string {
  return name !== undefined && commandNames.includes(name) ? `help ${name}` : "help";
}

async function overview(): Promise<string> {
  const commands = await allCommands();
  const width = Math.max(...commands.map((command) => command.name.length));
  return [
    "Sagas, outbox and inbox for TypeScript services on PostgreSQL.",
    "",
    "Usage: sagabox <command> [options]",
    "",
    ...commands.map((command) => `  ${command.name.padEnd(width)}  ${command.summary}`),
    "",
    "`sagabox help <command>` describes a command, `sagabox --version` prints the version.",
    "",
    "Exit codes:",
    ...exitCodes.map(({ code, meaning }) => `  ${code}  ${meaning}`),
  ].join("\n");
}

const MISUSE: readonly ErrorCode[] = [
  "ENVIRONMENT_INVALID",
  "SCHEMA_NAME_INVALID",
  "OPTIONS_INVALID",
  "OPTIONS_UNKNOWN_KEY",
];

function isMisuse(error: unknown): boolean {
  return isSagaboxError(error) && MISUSE.includes(error.code);
}

/** Translates PostgreSQL errors that the command did not translate itself. */
function explainError(error: unknown, args: readonly string[], { env }: Io): unknown {
  const schemas = args.flatMap(
    (arg, index) =>
      /^--schema(?:=(.*))?$/.exec(arg)?.[1] ?? (arg === "--schema" ? (args[index + 1] ?? []) : []),
  );
  return explainPostgresError(error, schemas[0] ?? env["SAGABOX_SCHEMA"] ?? "sagabox");
}

function wantsStack({ env }: Io): boolean {
  return (env["SAGABOX_LOG_LEVEL"] ?? env["LOG_LEVEL"] ?? "").toLowerCase() === "debug";
}
