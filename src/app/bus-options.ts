import type { ClaimCheckOptions } from "../claim-check/index.ts";
import { readAuditSettings, type AuditOptions, type AuditSettings } from "../audit/index.ts";
import { SagaboxError } from "../errors/index.ts";
import type { BusTransaction, InboxOptions } from "../inbox/index.ts";
import { outboxSettings, type OutboxOptions, type OutboxSettings } from "../outbox/index.ts";
import { isValidId, type Routing } from "../message/index.ts";
import {
  readNoticeSettings,
  type NoticeSettings,
  type NotifyOptions,
  type OnDeadLetter,
} from "../notify/index.ts";
import {
  environmentVariables,
  option,
  Problems,
  readEnvironment,
  readOptions,
  type Environment,
  type EnvironmentOptions,
  type OptionsFrom,
  type SettingsFrom,
} from "../options/index.ts";
import { readPrivacySettings, type PrivacyOptions, type PrivacySettings } from "../privacy/index.ts";
import { randomToken } from "../runtime/index.ts";
import { sagaSettings, type SagaBusOptions, type SagaSettings } from "../saga/index.ts";
import { quoteSchema, type PgPool, type TransactionAdapter } from "../storage/index.ts";
import type { LogLevel, Observer, Telemetry } from "../telemetry/index.ts";
import type { Transport } from "../transport/index.ts";
import { readClaimCheck } from "./payloads.ts";
import { readLogSettings, type LogOptions, type LogSettings } from "./log-options.ts";

const DAY_MS = 86_400_000;

const conservationOptions = {
  /** Pause between two rounds of the check. Default "1m", from "1s" to "1h". */
  every: option.duration({ default: "1m", min: 1_000, max: 3_600_000 }),
};

/** Options of the conservation check, which every worker with the part "upkeep" runs. */
interface ConservationOptions extends OptionsFrom<typeof conservationOptions> {}

export const busOptions = {
  /** The name of this service, used as the source of the messages it publishes. */
  service: option.string({ required: true, pattern: /^[^\p{Cc}]+$/u }),
  /** A pg.Pool or a postgres:// URL. Default: DATABASE_URL. */
  database: option.value<PgPool | string>({ accepts: "PgPool | string", check: checkDatabase }),
  /**
   * Set it if `database` goes through a pooler in transaction mode, such as PgBouncer: a postgres:// URL or a pg.Pool that
   * leads to PostgreSQL without the pooler. A worker listens and keeps sessions there, everything else uses `database`.
   * False if there is no such address: then publish, `drain` and `handle` work, and `run` does not. Default:
   * SAGABOX_DIRECT_URL, else `database` is direct itself.
   */
  directUrl: option.value<PgPool | string | false>({
    accepts: "string | PgPool | false",
    check: checkDirectUrl,
  }),
  /** The library whose transactions handlers get, such as `drizzleTransactions(db)`. Default: a `BusTransaction`. */
  transactions: option.value<TransactionAdapter<object>>({
    accepts: "TransactionAdapter",
    check: (_, adapter) => checkAdapter(adapter),
  }),
  /** The transport that moves messages. Default: `postgres()`. */
  transport: option.value<Transport>({
    accepts: "Transport",
    check: (_, transport) => checkTransport(transport),
  }),
  /** The schema of sagabox's own tables. Default "sagabox". */
  schema: option.value<string>({ accepts: "string", default: "sagabox", check: checkSchema }),
  /** The unique name of this worker within the service. Default: SAGABOX_WORKER_ID, else the service name and a random suffix. */
  worker: option.value<string>({ accepts: "string", check: checkWorkerName }),
  /** Chooses the topic of a message whose contract names none. */
  routing: option.callback<Routing>(),
  /** How long a worker keeps its lanes after its last renewal. Default "30s". */
  lease: environmentVariables.lease.option,
  /** The largest message data, in bytes of JSON. Default: the limit of the claim check; 1,048,576 without one. */
  maxPayloadBytes: option.number({ min: 1, max: 64 * 1_048_576 }),
  /** Where data is stored that is too large for a message. Default: the database with the Postgres transport, else off. */
  claimCheck: option.value<ClaimCheckOptions | false>({ accepts: "ClaimCheckOptions | false" }),
  /** Options of the outbox and its relay. */
  outbox: option.value<OutboxOptions, OutboxSettings>({
    accepts: "OutboxOptions",
    default: {},
    check: (_, value) => outboxSettings(value as OutboxOptions),
  }),
  /** Options of `bus.inbox`, the inbox for a consumer loop you write yourself. */
  inbox: option.value<InboxOptions>({ accepts: "InboxOptions", default: {} }),
  /** Options of all sagas. */
  sagas: option.value<SagaBusOptions, SagaSettings>({
    accepts: "SagaBusOptions",
    default: {},
    check: (_, value) => sagaSettings(value as SagaBusOptions),
  }),
  /** How long the audit log is kept and how often it is sealed. */
  audit: option.value<AuditOptions, AuditSettings>({
    accepts: "AuditOptions",
    default: {},
    check: (_, value) => readAuditSettings(value as AuditOptions),
  }),
  /** How often the worker checks that everything written is accounted for. */
  conservation: option.value<ConservationOptions, SettingsFrom<typeof conservationOptions>>({
    accepts: "ConservationOptions",
    default: {},
    check: (name, value) => readOptions(name, conservationOptions, value as ConservationOptions),
  }),
  /** The keys that encrypt personal data. Default: SAGABOX_KEY_RING or SAGABOX_KEY_RING_FILE. */
  privacy: option.value<PrivacyOptions>({ accepts: "PrivacyOptions", default: {} }),
  /** How long stop() waits for work in flight. Default "30s". */
  shutdownTimeout: environmentVariables.shutdownTimeout.option,
  /** How long dead letters are kept. Default "14d". */
  deadLetterRetention: option.duration({ default: "14d", min: DAY_MS, max: 3_650 * DAY_MS }),
  /** How long dedupe rows are kept at least; always as long as a message can be replayed. Default "30d". */
  inboxRetention: option.duration({ default: "30d", min: 7 * DAY_MS, max: 3_650 * DAY_MS }),
  /** The log level or log options; false turns logging off. Default: SAGABOX_LOG_LEVEL, else "info". */
  log: option.value<LogLevel | LogOptions | false>({ accepts: "LogLevel | LogOptions | false" }),
  /** Called for every new dead letter, outside the message flow. If it fails, `notice.failed` is emitted. */
  onDeadLetter: option.value<OnDeadLetter>({ accepts: "a function" }),
  /** Posts dead letters to a webhook. Delivery is best effort: the dead-letter table is the record. */
  notify: option.value<NotifyOptions>({ accepts: "NotifyOptions" }),
  /** Additional observers that receive every telemetry event. */
  observers: option.value<readonly Observer[]>({
    accepts: "Observer[]",
    check: (_, observers) => checkObservers(observers),
  }),
  /** An exporter of traces and metrics: `openTelemetry()` from sagabox/opentelemetry. */
  telemetry: option.value<Telemetry>({ accepts: "Telemetry" }),
};

/** Options of `createBus()`. */
export interface BusOptions<Tx = BusTransaction> extends Omit<
  OptionsFrom<typeof busOptions>,
  "transactions"
> {
  /** The library whose transactions handlers get, such as `drizzleTransactions(db)`. Default: a `BusTransaction`. */
  readonly transactions?: TransactionAdapter<Tx>;
}

type CheckedOptions = SettingsFrom<typeof busOptions>;

export interface BusSettings extends Omit<CheckedOptions, "privacy" | "log" | "onDeadLetter" | "notify"> {
  readonly database: PgPool | string;
  readonly worker: string;
  readonly privacy: PrivacySettings;
  readonly notices: NoticeSettings;
  readonly log: LogSettings | false;
  readonly host: string;
  /** SAGABOX_PORT; undefined if it is not set. */
  readonly port: number | undefined;
  readonly concurrency: number | undefined;
}

/**
 * Merges options, environment variables and defaults, in this order of precedence. Throws one error that lists every
 * problem.
 */
export function readBusSettings(options: BusOptions, env: Environment): BusSettings {
  if (!isObject(options)) throw invalid("createBus must be an object.");
  const problems = new Problems();
  const around = problems.collect(() => readEnvironment(env));
  const database = options.database ?? around?.databaseUrl;
  if (around !== undefined && database === undefined) problems.collect(throwNoDatabase);
  const checked = problems.collect(() => readBusOptions(options, around ?? {}));
  const privacy = problems.collect(() =>
    readPrivacySettings(options.privacy, {
      text: around?.keyRing,
      file: env["SAGABOX_KEY_RING_FILE"], // a path, so that the ring can be reloaded
    }),
  );
  const notices = problems.collect(() => readNoticeSettings(options.onDeadLetter, options.notify));
  const log = problems.collect(() => readLogSettings(options.log, around ?? {}));
  problems.collect(() => checkClaimCheck(options, checked));
  problems.throwIfAny("The options of createBus()");
  const {
    service,
    worker = `${service}-${randomToken().slice(0, 8)}`,
    ...others
  } = checked as CheckedOptions;
  const { host = environmentVariables.host.option.default, port, concurrency } = around ?? {};
  return Object.freeze({
    ...others,
    service,
    worker: checkWorkerName("worker", worker),
    database,
    privacy,
    notices,
    log,
    host,
    port,
    concurrency,
  }) as BusSettings;
}

function readBusOptions(options: BusOptions, around: EnvironmentOptions): CheckedOptions {
  const { batchSize, pollInterval, optimistic, directUrl, schema, workerId, lease, shutdownTimeout } = around;
  const outbox = {
    ...(batchSize === undefined ? {} : { batchSize }),
    ...(pollInterval === undefined ? {} : { pollInterval }),
    ...(optimistic === undefined ? {} : { optimistic }),
    ...options.outbox,
  };
  const fallback = {
    ...(directUrl === undefined ? {} : { directUrl }),
    ...(schema === undefined ? {} : { schema }),
    ...(workerId === undefined ? {} : { worker: workerId }),
    ...(lease === undefined ? {} : { lease }),
    ...(shutdownTimeout === undefined ? {} : { shutdownTimeout }),
  };
  return readOptions("createBus", busOptions, { ...options, outbox } as OptionsFrom<typeof busOptions>, {
    prefix: "",
    fallback,
  });
}

// The claim check is read again when the bus is wired. Reading it here reports its problems with all others. Its minimum
// retention depends on other options. If one of them was refused, their smallest values stand in for it.
function checkClaimCheck({ claimCheck, transport }: BusOptions, checked: CheckedOptions | undefined): void {
  const smallest = { deadLetterRetentionMs: 0, inboxRetentionMs: 7 * DAY_MS, outbox: { retentionMs: 0 } };
  const { deadLetterRetentionMs, inboxRetentionMs, outbox } = checked ?? smallest;
  readClaimCheck({ claimCheck, deadLetterRetentionMs, inboxRetentionMs }, outbox, transport);
}

// A pool is checked where the database is attached to it. With an empty URL, pg reads PGHOST and its other variables.
function checkDatabase(name: string, database: unknown): PgPool | string {
  if (typeof database === "string" && database !== "")
    environmentVariables.databaseUrl.option.check(name, database);
  return database as PgPool | string;
}

function checkDirectUrl(name: string, direct: unknown): PgPool | string | false {
  if (direct === false || hasAll(direct, ["connect", "end"])) return direct as PgPool | false;
  if (typeof direct === "string") return environmentVariables.directUrl.option.check(name, direct) as string;
  throw invalid(
    "directUrl must be a postgres:// URL or a pg.Pool that leads to PostgreSQL without the pooler, or false if no such address exists.",
  );
}

// For callers without the compiler: a missing method would otherwise fail later, with a confusing error.
function checkTransport(transport: unknown): Transport {
  const methods: readonly string[] = ["open", "publish", "subscribe", "close"];
  if (hasAll(transport, methods) && isObject(transport) && isObject(transport["capabilities"])) {
    return transport as unknown as Transport;
  }
  throw invalid(
    "transport is not a transport. " +
      "Pass the result of postgres(), rabbitmq(), kafka() or nats(), or a transport of your own.",
  );
}

function checkAdapter(adapter: unknown): TransactionAdapter<object> {
  if (hasAll(adapter, ["run", "query"])) return adapter as unknown as TransactionAdapter<object>;
  throw invalid(
    "transactions is not an adapter. Pass the result of drizzleTransactions(db) or of the function for your library, not the " +
      "library's own object.",
  );
}

function checkObservers(observers: unknown): readonly Observer[] {
  if (Array.isArray(observers) && observers.every((observer) => hasAll(observer, ["emit"]))) return observers;
  throw invalid("observers must be an array of objects with an `emit` function.");
}

function hasAll(value: unknown, methods: readonly string[]): boolean {
  return isObject(value) && methods.every((method) => typeof value[method] === "function");
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}

function throwNoDatabase(): never {
  throw invalid(
    "No database is configured. Pass `database` (a pg.Pool or a postgres:// URL) or set DATABASE_URL.",
  );
}

function checkSchema(_: string, schema: unknown): string {
  quoteSchema(schema as string);
  return schema as string;
}

function checkWorkerName(_: string, worker: unknown): string {
  if (isValidId(worker) && worker.length <= 200) return worker;
  throw invalid("worker must be a string of 1 to 200 characters.");
}

function invalid(message: string): SagaboxError {
  return new SagaboxError("OPTIONS_INVALID", message);
}
