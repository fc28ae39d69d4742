import { type ErrorCode, findNearest, isSagaboxError } from "../errors/index.ts";
import { explainPostgresError } from "../storage/index.ts";
import { PACKAGE_VERSION } from "../telemetry/index.ts";
import {
  type Command,
  commandHelp,
  exitCodes,
  FAILED,
  type Io,
  parseCommand,
  USAGE_ERROR,
  UsageError,
} from "./command.ts";
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

/** In the order of `sagabox help`. Each command is imported on first use, so that the CLI starts fast. */
const loaders: Readonly<Record<string, () => Promise<Command>>> = {
  dev: async () => (await import("./commands/dev.ts")).dev,
  worker: async () => (await import("./commands/worker.ts")).worker,
  migrate: async () => (await import("./commands/migrate.ts")).migrate,
  status: async () => (await import("./commands/status.ts")).status,
  outbox: async () => (await import("./commands/outbox.ts")).outbox,
  inbox: async () => (await import("./commands/inbox.ts")).inbox,
  republish: async () => (await import("./commands/republish.ts")).republish,
  dlq: async () => (await import("./commands/dlq.ts")).dlq,
  saga: async () => (await import("./commands/saga.ts")).saga,
  flow: async () => (await import("./commands/flow.ts")).flow,
  explain: async () => (await import("./commands/explain.ts")).explain,
  verify: async () => (await import("./commands/verify.ts")).verify,
  doctor: async () => (await import("./commands/doctor.ts")).doctor,
  tune: async () => (await import("./commands/tune.ts")).tune,
  roles: async () => (await import("./commands/roles.ts")).roles,
  audit: async () => (await import("./commands/audit.ts")).audit,
  erase: async () => (await import("./commands/erase.ts")).erase,
  privacy: async () => (await import("./commands/privacy.ts")).privacy,
  topology: async () => (await import("./commands/topology.ts")).topology,
  completion: async () => (await import("./commands/completion.ts")).completion(allCommands),
};

export const commandNames: readonly string[] = Object.keys(loaders);

export function allCommands(): Promise<readonly Command[]> {
  return Promise.all(Object.values(loaders).map((load) => load()));
}

export function loadCommand(name: string): Promise<Command> {
  const load = Object.hasOwn(loaders, name) ? loaders[name] : undefined;
  if (load !== undefined) return load();
  const suggestion = findNearest(name, [...commandNames, "help", "version"]);
  const hint =
    suggestion === undefined ? `Known: ${commandNames.join(", ")}.` : `Did you mean ${suggestion}?`;
  throw new UsageError(`There is no command "${name}". ${hint}`);
}
