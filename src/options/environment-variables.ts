import { createHmac } from "node:crypto";
import { findNearest } from "../errors/index.ts";
import { allBrokerVariables } from "./broker-variables.ts";
import { text } from "./checks.ts";
import { option, type Option } from "./option.ts";

/** A setting that comes from the environment. The first of its names takes precedence. */
export interface EnvironmentVariable<T = unknown> {
  readonly names: readonly [string, ...string[]];
  readonly meaning: string;
  /** The option that the variable sets, with its default and bounds. */
  readonly option: Option<unknown, T>;
  /** Converts the text of the variable `name` to a value that the option accepts. Default: the text itself. */
  readonly parse?: (value: string, name: string) => unknown;
  /** The default in words, if the option has none. Default "none". */
  readonly otherwise?: string;
  /** A secret can also be passed as the path of a file, in the variable with the suffix `_FILE`. */
  readonly secret: boolean;
  /** What to consider before changing it. */
  readonly advice?: string;
  /** A value for `.env.example`. Default: the default, if it is a single word. */
  readonly example?: string;
  /**
   * Returns true for values that are meant for sagabox, so that their problems are reported. Other invalid values under
   * a general name, such as `LOG_LEVEL`, are ignored, because they may belong to the host application.
   */
  isOurs?(value: string): boolean;
}

const plain = { secret: false } as const;
const secret = { secret: true } as const;

/** Every setting that can come from the environment. SAGABOX_* names take precedence over general ones. */
export const environmentVariables = {
  databaseUrl: {
    ...secret,
    names: ["SAGABOX_DATABASE_URL", "DATABASE_URL"],
    meaning: "Connection address of PostgreSQL.",
    advice:
      "Use a file in production. Start with cores × 2 + spindles connections for the whole server; see the production checklist.",
    example: "postgres://app:change-me@localhost:5432/shop",
    option: option.string({
      max: 4_096,
      pattern: /^postgres(ql)?:\/\//,
      like: "postgres://user@host:5432/database",
    }),
  },
  directUrl: {
    ...secret,
    names: ["SAGABOX_DIRECT_URL"],
    meaning: "Connection address of PostgreSQL without the pooler, if `DATABASE_URL` leads through one.",
    advice:
      "Needed with a pooler in transaction mode, such as PgBouncer, Supavisor or a pooled Neon URL. The command line uses it, too.",
    option: option.string({
      max: 4_096,
      pattern: /^postgres(ql)?:\/\//,
      like: "postgres://user@host:5432/database",
    }),
  },
  schema: {
    ...plain,
    names: ["SAGABOX_SCHEMA"],
    meaning: "Database schema that holds the tables.",
    advice: "One schema for all services of one database; several only to keep environments apart.",
    option: option.string({ default: "sagabox", pattern: /^[a-z_][a-z0-9_]{0,62}$/ }),
  },
  keyRing: {
    ...secret,
    names: ["SAGABOX_KEY_RING", "ENCRYPTION_KEY"],
    meaning:
      "Keys for personal data, as lines of `name base64`. The first key wraps new data keys; the key named `index` is for blind indexes. `ENCRYPTION_KEY` is a single key of 32 bytes in base64.",
    otherwise: "none: personal data cannot be encrypted",
    advice: "Use a file: it is read again when it changes, so keys can be rotated.",
    option: option.string({ max: 65_536 }),
    parse: (value: string, name: string) =>
      name.startsWith("SAGABOX_") ? value : createSingleKeyRing(name, value),
  },
  workerId: {
    ...plain,
    names: ["SAGABOX_WORKER_ID", "WORKER_ID"],
    meaning: "Name of this worker in leases, logs and metrics.",
    otherwise: "the service name and a random suffix",
    advice: "Set it to the name of the pod: it must be unique among the workers of a service.",
    option: option.string({ pattern: /^[A-Za-z0-9][A-Za-z0-9._:-]*$/ }),
  },
  batchSize: {
    ...plain,
    names: ["SAGABOX_BATCH_SIZE", "BATCH_SIZE"],
    meaning: "How many messages the relay reads in one batch.",
    advice: "Larger batches raise throughput until the broker is the limit; `sagabox tune` measures it.",
    option: option.number({ default: 500, min: 1, max: 5_000 }),
    parse: parseDecimal,
  },
  pollInterval: {
    ...plain,
    names: ["SAGABOX_POLL_INTERVAL", "POLL_INTERVAL_SECONDS"],
    meaning: "Longest pause between two polls of an idle outbox.",
    advice:
      "Polling is the fallback for missed notifications. Raise it only to save load on an idle database.",
    option: option.duration({ default: "1s", min: 10, max: 60_000 }),
    parse: (value: string, name: string) => (name.endsWith("_SECONDS") ? `${value}s` : value),
    isOurs: (value: string) => /^\d+(\.\d+)?$/.test(value),
  },
  lease: {
    ...plain,
    names: ["SAGABOX_LEASE"],
    meaning: "How long a worker keeps its lanes after its last renewal.",
    advice:
      "Longer than the longest pause of a worker; a dead worker is replaced after this time, on its own machine within seconds.",
    option: option.duration({ default: "30s", min: 1_000, max: 3_600_000 }),
  },
  concurrency: {
    ...plain,
    names: ["SAGABOX_CONCURRENCY"],
    meaning: "How many messages each consumer handles concurrently in this worker.",
    advice:
      "Each handler needs a connection: keep it below the size of the pool. `sagabox tune` measures a good value; handlers that wait for other services need more.",
    option: option.number({ default: 10, min: 1, max: 1_000 }),
    parse: parseDecimal,
  },
  optimistic: {
    ...plain,
    names: ["SAGABOX_OPTIMISTIC"],
    meaning: "Whether messages are sent right after commit, before the relay reads them.",
    advice: "Turn it off where the processes that publish cannot reach the broker.",
    option: option.boolean({ default: true }),
    parse: parseBoolean,
  },
  shutdownTimeout: {
    ...plain,
    names: ["SAGABOX_SHUTDOWN_TIMEOUT"],
    meaning: "How long a stopping worker may finish work in flight.",
    advice: "Shorter than the time the platform waits before it kills the process.",
    option: option.duration({ default: "30s" }),
  },
  logLevel: {
    ...plain,
    names: ["SAGABOX_LOG_LEVEL", "LOG_LEVEL"],
    meaning: "Least severe level that is logged: debug, info, warn, error or silent.",
    advice: "`debug` logs every message; use it only briefly in production.",
    option: option.choice(["debug", "info", "warn", "error", "silent"], { default: "info" }),
    parse: parseLevel,
  },
  logFormat: {
    ...plain,
    names: ["SAGABOX_LOG_FORMAT"],
    meaning: "Format of log lines: json, pretty, or auto (pretty on a terminal, else json).",
    advice: "Colours are used on terminals only, and never if `NO_COLOR` is set.",
    option: option.choice(["auto", "json", "pretty"], { default: "auto" }),
    parse: (value: string) => value.toLowerCase(),
  },
  host: {
    ...plain,
    names: ["SAGABOX_HOST"],
    meaning: "Address on which health and metrics listen.",
    advice: "`0.0.0.0` in a container, so that probes reach it.",
    option: option.string({ default: "127.0.0.1", pattern: /^[A-Za-z0-9.:_-]+$/ }),
  },
  port: {
    ...plain,
    names: ["SAGABOX_PORT"],
    meaning: "Port on which health and metrics listen.",
    otherwise: "8000 for `sagabox worker` and `dev`; none for `bus.run()`",
    advice: "Keep it off the public network: it has no password. A port passed in code takes precedence.",
    example: "8000",
    option: option.number({ max: 65_535 }),
    parse: parseDecimal,
  },
} as const satisfies Record<string, EnvironmentVariable>;

/** Checks the text of a variable. Throws OPTIONS_INVALID with the name of the variable. */
export function readVariable<T>({ option, parse }: EnvironmentVariable<T>, name: string, value: string): T {
  return option.check(name, parse === undefined ? value : parse(value, name));
}

const PREFIX = "SAGABOX_";

/** Lists SAGABOX_* variables in `env` that sagabox does not read, each with the name that was probably meant. */
export function unknownVariables(
  env: Readonly<Record<string, string | undefined>>,
): readonly { name: string; suggestion: string | undefined }[] {
  const known = allVariables().flatMap((variable) =>
    variable.secret ? variable.names.flatMap((name) => [name, `${name}_FILE`]) : [...variable.names],
  );
  // The common prefix is left out of the comparison: it would make very different names look alike.
  const suffixes = known.filter((name) => name.startsWith(PREFIX)).map((name) => name.slice(PREFIX.length));
  return Object.keys(env)
    .filter((name) => name.startsWith(PREFIX) && !known.includes(name))
    .map((name) => {
      const nearest = findNearest(name.slice(PREFIX.length), suffixes);
      return { name, suggestion: nearest === undefined ? undefined : `${PREFIX}${nearest}` };
    });
}

/** Describes each SAGABOX_* variable in `env` that sagabox does not read, in one or two sentences. */
export function describeUnknownVariables(env: Readonly<Record<string, string | undefined>>): string[] {
  return unknownVariables(env).map(({ name, suggestion }) => {
    const hint = suggestion === undefined ? "" : ` Did you mean ${suggestion}?`;
    return `${name} is set, but sagabox does not read it.${hint}`;
  });
}

/** Lists the `_FILE` variables of secrets that are set, each with its path. */
export function secretFiles(
  env: Readonly<Record<string, string | undefined>>,
): readonly { readonly name: string; readonly path: string }[] {
  return allVariables()
    .filter(({ secret }) => secret)
    .flatMap(({ names }) => names.map((name) => `${name}_FILE`))
    .flatMap((name) => {
      const path = env[name];
      return path ? [{ name, path }] : [];
    });
}

function allVariables(): readonly EnvironmentVariable[] {
  return [...Object.values<EnvironmentVariable>(environmentVariables), ...allBrokerVariables()];
}

// Builds a key ring from `ENCRYPTION_KEY`. The key of blind indexes is derived from it, so that it is the same in all
// workers and after a restart.
function createSingleKeyRing(name: string, value: string): string {
  const key = text(name, value, { pattern: /^[A-Za-z0-9+/_-]{43}=?$/ });
  const index = createHmac("sha256", Buffer.from(key, "base64")).update("sagabox index").digest("base64");
  return `encryption-key ${key}\nindex ${index}`;
}

// The option rejects NaN.
function parseDecimal(value: string): number {
  return /^\d{1,15}$/.test(value) ? Number(value) : Number.NaN;
}

// The option rejects a string.
function parseBoolean(value: string): boolean | string {
  const word = value.toLowerCase();
  if (["1", "true", "yes", "on"].includes(word)) return true;
  if (["0", "false", "no", "off"].includes(word)) return false;
  return value;
}

// Accepts two level names that other programs use: warning and critical.
function parseLevel(value: string): string {
  const word = value.toLowerCase();
  return word === "warning" ? "warn" : word === "critical" ? "error" : word;
}
