import { isSagaboxError, type ErrorCode } from "../errors/index.ts";
import { nearest } from "../options/index.ts";
import { explainPostgresError } from "../storage/index.ts";
import { packageVersion } from "../telemetry/index.ts";
import { commandHelp, parseCommand, UsageError, type Command, type Io } from "./command.ts";
import { audit } from "./commands/audit.ts";
import { completion } from "./commands/completion.ts";
import { dev } from "./commands/dev.ts";
import { dlq } from "./commands/dlq.ts";
import { doctor } from "./commands/doctor.ts";
import { erase } from "./commands/erase.ts";
import { explain } from "./commands/explain.ts";
import { inbox } from "./commands/inbox.ts";
import { migrate } from "./commands/migrate.ts";
import { outbox } from "./commands/outbox.ts";
import { privacy } from "./commands/privacy.ts";
import { republish } from "./commands/republish.ts";
import { roles } from "./commands/roles.ts";
import { saga } from "./commands/saga.ts";
import { status } from "./commands/status.ts";
import { tune } from "./commands/tune.ts";
import { topology } from "./commands/topology.ts";
import { verify } from "./commands/verify.ts";
import { worker } from "./commands/worker.ts";
import { exitCodes, FAILED, MISUSED } from "./exit-codes.ts";
import { errorText } from "./print.ts";

export const commands: readonly Command[] = [
  dev,
  worker,
  migrate,
  status,
  outbox,
  inbox,
  republish,
  dlq,
  saga,
  explain,
  verify,
  doctor,
  tune,
  roles,
  audit,
  erase,
  privacy,
  topology,
  completion(() => commands),
];

/** Runs one command line and returns its exit code; every failure is told on standard error. */
export async function runCli(args: readonly string[], io: Io): Promise<number> {
  try {
    return await dispatch(args, io);
  } catch (error) {
    const misused = error instanceof UsageError || isMisuse(error);
    io.err(`sagabox: ${errorText(explained(error, args, io), wantsStack(io))}`);
    if (error instanceof UsageError) io.err(`Run \`sagabox ${helpFor(args)}\` to see what there is.`);
    return misused ? MISUSED : FAILED;
  }
}

async function dispatch([name = "help", ...rest]: readonly string[], io: Io): Promise<number> {
  if (name === "--version" || name === "-v") {
    io.out(packageVersion());
    return 0;
  }
  if (name === "help" || name === "--help" || name === "-h") {
    io.out(rest[0] === undefined ? overview() : commandHelp(find(rest[0])));
    return 0;
  }
  const command = find(name);
  if (rest.includes("-h")) return dispatch(["help", name], io);
  const input = parseCommand(command, rest);
  if (input.values["help"] === true) return dispatch(["help", name], io);
  return command.run(input, io);
}

function find(name: string): Command {
  const command = commands.find((candidate) => candidate.name === name);
  if (command !== undefined) return command;
  const names = commands.map((candidate) => candidate.name);
  const suggestion = nearest(name, names);
  const hint = suggestion === undefined ? `Known are: ${names.join(", ")}.` : `Did you mean ${suggestion}?`;
  throw new UsageError(`There is no command "${name}". ${hint}`);
}

function helpFor([name]: readonly string[]): string {
  return commands.some((command) => command.name === name) ? `help ${name}` : "help";
}

function overview(): string {
  const width = Math.max(...commands.map((command) => command.name.length));
  return [
    "Sagas, outbox and inbox for TypeScript services on PostgreSQL.",
    "",
    "Usage: sagabox <command> [options]",
    "",
    ...commands.map((command) => `  ${command.name.padEnd(width)}  ${command.summary}`),
    "",
    "`sagabox help <command>` tells more about one of them, `sagabox --version` which version this is.",
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

/** What the server said in its own words, where a command has let it pass. */
function explained(error: unknown, args: readonly string[], { env }: Io): unknown {
  const given = args.flatMap(
    (arg, index) =>
      /^--schema(?:=(.*))?$/.exec(arg)?.[1] ?? (arg === "--schema" ? (args[index + 1] ?? []) : []),
  );
  return explainPostgresError(error, given[0] ?? env["SAGABOX_SCHEMA"] ?? "sagabox");
}

function wantsStack({ env }: Io): boolean {
  return (env["SAGABOX_LOG_LEVEL"] ?? env["LOG_LEVEL"] ?? "").toLowerCase() === "debug";
}
