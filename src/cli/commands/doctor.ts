import { realpathSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { type Diagnosis, type Examination, examine } from "../../admin/index.ts";
import { type Environment, type EnvironmentOptions, secretFiles } from "../../options/index.ts";
import { type Command, type CommandInput, DONE, FOUND, type Io, textValue, UsageError } from "../command.ts";
import { jsonText, safeLines } from "../print.ts";
import { loadEnvironment, readSchemaName, withDatabase } from "../settings.ts";

interface SecretFiles {
  /** How many files with secrets the environment names. */
  readonly files: number;
  /** The variables among those whose file every user of the machine can read or change. */
  readonly open: readonly string[];
}

const OTHERS_EXECUTE = 0o001;
const OTHERS_READ_OR_WRITE = 0o006;

/** Windows keeps its rights elsewhere: there every file passes. */
export function findOpenSecrets(env: Environment, platform: NodeJS.Platform = process.platform): SecretFiles {
  const named = secretFiles(env);
  const open = platform === "win32" ? [] : named.filter(({ path }) => isOpen(path));
  return { files: named.length, open: open.map(({ name }) => name) };
}

// What is not there, or where we may not look, is closed; whoever needs it complains of it by itself.
function isOpen(path: string): boolean {
  try {
    const file = realpathSync(path);
    return (statSync(file).mode & OTHERS_READ_OR_WRITE) !== 0 && isReachableByOthers(dirname(file));
  } catch {
    return false;
  }
}

/** A file in a folder that others cannot enter is theirs as little as the folder. */
function isReachableByOthers(folder: string): boolean {
  if ((statSync(folder).mode & OTHERS_EXECUTE) === 0) return false;
  const above = dirname(folder);
  return above === folder || isReachableByOthers(above);
}

const TIMEOUT_MS = 2_000;

/** Where a worker that listens on this address answers from this machine: at every address means at ours, too. */
export function healthUrl(host: string, port: number): string {
  const own = host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : host;
  return `http://${own.includes(":") ? `[${own}]` : own}:${port}/health/ready`;
}

/** Whether the worker beside us says that it is ready. */
async function checkHealth(url: string): Promise<{ readonly url: string; readonly status: number | null }> {
  try {
    const answer = await fetch(url, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    await answer.body?.cancel();
    return { url, status: answer.status };
  } catch {
    return { url, status: null };
  }
}

export const doctor: Command = {
  name: "doctor",
  summary: "Examine server, schema, roles and traffic, and say what is wrong and what mends it.",
  usage: ["doctor [--production] [--all] [--pool <number>] [--schema <name>] [--json]"],
  details: `Version and settings of the server, migrations and drift of the schema, rights of this user, whether wake-ups arrive,
clocks, connections, replication slots, long transactions, vacuum, partitions of the coming days, relay, lanes that are
owned and not read, consumers, commands nobody subscribed to, dead letters, stuck sagas, the audit log and the conservation
check. It changes nothing; it sends one hint on the channel the workers listen on, to see whether it arrives.

--production also asks for TLS, rights that are no wider than needed, two workers, backups, keys, files with secrets
that others cannot read, and retention.

Exit code 3 when there is a problem; advice alone is no problem. The role of an operator sees everything but when sessions
of other users began, which needs pg_read_all_stats; what could not be looked at is said so.

Examples:
  sagabox doctor
  sagabox doctor --production --json | jq -r '.findings[] | select(.severity == "problem") | .fix'

Connects to DATABASE_URL.`,
  options: {
    production: { type: "boolean", help: "Ask what only matters in production, too." },
    all: { type: "boolean", help: "Print what is fine, too." },
    pool: { type: "string", value: "<number>", help: "Connections each worker may open. Default: 30." },
    schema: { type: "string", value: "<name>", help: "Database schema. Default: SAGABOX_SCHEMA or sagabox." },
    json: { type: "boolean", help: "Print JSON." },
  },
  async run(input, io) {
    if (input.positionals.length > 0) {
      throw new UsageError(`"sagabox doctor" takes no argument, but got ${input.positionals.join(" ")}.`);
    }
    const poolSize = readPoolSize(input);
    const env = loadEnvironment(io);
    const schema = readSchemaName(input, env);
    const production = input.values["production"] === true ? await gatherFacts(env, io) : undefined;
    const found = await withDatabase(env.databaseUrl, (database) =>
      examine(database, schema, {
        ...(production === undefined ? {} : { production }),
        ...(poolSize === undefined ? {} : { poolSize }),
      }),
    );
    io.out(
      input.values["json"] === true ? jsonText(found) : examinationText(found, input.values["all"] === true),
    );
    return found.healthy ? DONE : FOUND;
  },
};

function readPoolSize(input: CommandInput): number | undefined {
  const text = textValue(input, "pool");
  if (text === undefined) return undefined;
  const size = /^\d{1,5}$/.test(text) ? Number(text) : 0;
  if (size < 1) throw new UsageError("--pool must be a whole number of at least 1.");
  return size;
}

async function gatherFacts(env: EnvironmentOptions, { env: variables }: Io) {
  const { host = "127.0.0.1", port } = env;
  const isAsked = port !== undefined || env.host !== undefined;
  return {
    health: isAsked ? await checkHealth(healthUrl(host, port ?? 8_000)) : null,
    keyRing: env.keyRing !== undefined || (variables["SAGABOX_KEY_RING_FILE"] ?? "") !== "",
    secrets: findOpenSecrets(variables),
    debugLog: env.logLevel === "debug",
  };
}

function examinationText({ findings, problems, advice }: Examination, all: boolean): string {
  const shown = findings.filter(({ severity }) => all || severity !== "fine");
  const fine = findings.length - problems - advice;
  const summary = `${problems} problem(s), ${advice} piece(s) of advice, ${fine} thing(s) fine.`;
  return safeLines([...shown.map(diagnosisText), summary].join("\n\n"));
}

const MARKS = { problem: "✗", advice: "!", fine: "✓" } as const;

function diagnosisText({ check, severity, seen, why, fix }: Diagnosis): string {
  const lines = [`${MARKS[severity]} ${check}: ${seen}`, why, fix === null ? null : `→ ${fix}`];
  return lines
    .filter((line) => line !== null)
    .map((line) => line.replaceAll("\n", "\n      "))
    .join("\n    ");
}
