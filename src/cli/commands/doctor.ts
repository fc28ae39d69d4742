import { realpathSync, statSync } from "node:fs";
import { dirname } from "node:path";
import { type Diagnosis, type Examination, examine } from "../../admin/index.ts";
import { type Environment, type EnvironmentOptions, secretFiles } from "../../options/index.ts";
import { type Command, type CommandInput, DONE, FOUND, type Io, textValue, UsageError } from "../command.ts";
import { jsonText, safeLines } from "../print.ts";
import { findUrl, loadEnvironment, readSchemaName, withDatabase } from "../settings.ts";

interface SecretFiles {
  /** How many files with secrets the environment names. */
  readonly files: number;
  /** Variables that name a file which every user of the machine can read or change. */
  readonly open: readonly string[];
}

const OTHERS_EXECUTE = 0o001;
const OTHERS_READ_OR_WRITE = 0o006;

/** Finds files with secrets that other users can read or change. On Windows, no file is reported. */
export function findOpenSecrets(env: Environment, platform: NodeJS.Platform = process.platform): SecretFiles {
  const named = secretFiles(env);
  const open = platform === "win32" ? [] : named.filter(({ path }) => isOpen(path));
  return { files: named.length, open: open.map(({ name }) => name) };
}

// A file that is missing or not accessible counts as closed. The code that needs it reports the problem.
function isOpen(path: string): boolean {
  try {
    const file = realpathSync(path);
    return (statSync(file).mode & OTHERS_READ_OR_WRITE) !== 0 && isReachableByOthers(dirname(file));
  } catch {
    return false;
  }
}

/** Returns whether other users may enter the folder and all folders above it. */
function isReachableByOthers(folder: string): boolean {
  if ((statSync(folder).mode & OTHERS_EXECUTE) === 0) return false;
  const above = dirname(folder);
  return above === folder || isReachableByOthers(above);
}

const TIMEOUT_MS = 2_000;

/** Returns the readiness URL of a worker on this machine. A worker that listens on all addresses is asked on loopback. */
export function healthUrl(host: string, port: number): string {
  const own = host === "0.0.0.0" ? "127.0.0.1" : host === "::" ? "::1" : host;
  return `http://${own.includes(":") ? `[${own}]` : own}:${port}/health/ready`;
}

/** Asks the worker on this machine whether it is ready. `status` is null if it does not answer. */
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
  summary: "Check the server, schema, roles and traffic, and print each problem with its fix.",
  usage: ["doctor [--production] [--all] [--pool <number>] [--schema <name>] [--json]"],
  details: `Checks version and settings of the server, migrations and drift of the schema, rights of this role, delivery of wake-ups,
clocks, connections, replication slots, long transactions, vacuum, partitions of the next days, the relay, lanes that are
owned but not read, consumers, commands without a subscriber, dead letters, stuck sagas, the audit log and the conservation
check. It changes nothing. It sends one hint on the channel of the workers to see whether it arrives.

--production also checks TLS, rights that are too wide, the number of workers, backups, keys, files with secrets that other
users can read, and retention.

Exit code 3 if there is a problem; advice alone does not count. The operator role is sufficient, except for the start times of
other users' sessions, which need pg_read_all_stats. Checks that could not run are listed.

Examples:
  sagabox doctor
  sagabox doctor --production --json | jq -r '.findings[] | select(.severity == "problem") | .fix'

Connects to DATABASE_URL.`,
  options: {
    production: { type: "boolean", help: "Include the checks for production." },
    all: { type: "boolean", help: "Include checks without a finding." },
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
    const found = await withDatabase(findUrl(env), (database) =>
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
