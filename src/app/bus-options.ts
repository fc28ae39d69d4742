import type { ClaimCheckOptions } from "../claim-check/index.ts";
import { readAuditSettings, type AuditOptions, type AuditSettings } from "../audit/index.ts";
import type { InboxOptions } from "../inbox/index.ts";
import { outboxSettings, type OutboxOptions } from "../outbox/index.ts";
import { isValidId, type Routing } from "../message/index.ts";
import {
  readNoticeSettings,
  type NoticeSettings,
  type NotifyOptions,
  type OnDeadLetter,
} from "../notify/index.ts";
import {
  allProblems,
  callable,
  inPart,
  milliseconds,
  readEnvironment,
  refuse,
  rejectUnknownKeys,
  text,
  wholeNumber,
  type Duration,
  type Environment,
} from "../options/index.ts";
import { readPrivacySettings, type PrivacyOptions, type PrivacySettings } from "../privacy/index.ts";
import { randomToken } from "../runtime/index.ts";
import { sagaSettings, type SagaBusOptions, type SagaSettings } from "../saga/index.ts";
import { quoteSchema, type PgPool } from "../storage/index.ts";
import type { LogLevel, Observer, Telemetry } from "../telemetry/index.ts";
import type { Transport } from "../transport/index.ts";
import { readClaimCheck } from "./claim-check.ts";
import { readLogSettings, type LogOptions, type LogSettings } from "./log-options.ts";

/** Options of the conservation check, which every worker with the part "upkeep" runs. */
interface ConservationOptions {
  /** Pause between two rounds of the check. Default "1m", from "1s" to "1h". */
  readonly every?: Duration | number;
}

export interface BusOptions {
  /** The name of this service, used as the source of the messages it publishes. */
  readonly service: string;
  /** A pg.Pool or a postgres:// URL. Default: DATABASE_URL. */
  readonly database?: PgPool | string;
  /** The transport that moves messages. Default: `postgres()`. */
  readonly transport?: Transport;
  /** The schema of sagabox's own tables. Default "sagabox". */
  readonly schema?: string;
  /** The unique name of this worker within the service. Default: WORKER_ID, else the service name and a random suffix. */
  readonly worker?: string;
  /** Chooses the topic of a message whose contract names none. */
  readonly routing?: Routing;
  /** How long a worker keeps its lanes after its last renewal. Default "30s". */
  readonly lease?: Duration | number;
  /** The largest message data, in bytes of JSON. Default: the limit of the claim check; 1,048,576 without one. */
  readonly maxPayloadBytes?: number;
  /** Where data is stored that is too large for a message. Default: the database with the Postgres transport, else off. */
  readonly claimCheck?: ClaimCheckOptions | false;
  readonly outbox?: OutboxOptions;
  /** Options of `bus.inbox`, the inbox for a consumer loop you write yourself. */
  readonly inbox?: InboxOptions;
  readonly sagas?: SagaBusOptions;
  /** How long the audit log is kept and how often it is sealed. */
  readonly audit?: AuditOptions;
  /** How often the worker checks that everything written is accounted for. */
  readonly conservation?: ConservationOptions;
  /** The keys that encrypt personal data. Default: SAGABOX_KEY_RING or SAGABOX_KEY_RING_FILE. */
  readonly privacy?: PrivacyOptions;
  /** How long stop() waits for work in flight. Default "30s". */
  readonly shutdownTimeout?: Duration | number;
  /** How long dead letters are kept. Default "14d". */
  readonly deadLetterRetention?: Duration | number;
  /** How long dedupe rows are kept at least; always as long as a message can be replayed. Default "30d". */
  readonly inboxRetention?: Duration | number;
  /** The log level or log options; false turns logging off. Default: LOG_LEVEL, else "info". */
  readonly log?: LogLevel | LogOptions | false;
  /** Called for every new dead letter, outside the message flow. If it fails, `notice.failed` is emitted. */
  readonly onDeadLetter?: OnDeadLetter;
  /** Posts dead letters to a webhook. Delivery is best effort: the dead-letter table is the record. */
  readonly notify?: NotifyOptions;
  /** Additional observers that receive every telemetry event. */
  readonly observers?: readonly Observer[];
  /** An exporter of traces and metrics: `openTelemetry()` from sagabox/opentelemetry. */
  readonly telemetry?: Telemetry;
}

export interface BusSettings {
  readonly service: string;
  readonly database: PgPool | string;
  readonly schema: string;
  readonly worker: string;
  readonly routing: Routing | undefined;
  readonly leaseMs: number;
  readonly maxPayloadBytes: number | undefined;
  readonly claimCheck: ClaimCheckOptions | false | undefined;
  readonly outbox: OutboxOptions;
  readonly inbox: InboxOptions;
  readonly sagas: SagaSettings;
  readonly audit: AuditSettings;
  readonly conservation: { readonly everyMs: number };
  readonly privacy: PrivacySettings;
  readonly shutdownMs: number;
  readonly deadLetterMs: number;
  readonly inboxMs: number;
  readonly notices: NoticeSettings;
  readonly log: LogSettings | false;
  readonly host: string;
  /** SAGABOX_PORT; undefined if it is not set. */
  readonly port: number | undefined;
  readonly concurrency: number | undefined;
}

const KNOWN = [
  "service",
  "database",
  "transport",
  "schema",
  "worker",
  "routing",
  "lease",
  "maxPayloadBytes",
  "claimCheck",
  "outbox",
  "inbox",
  "sagas",
  "audit",
  "conservation",
  "privacy",
  "shutdownTimeout",
  "deadLetterRetention",
  "inboxRetention",
  "onDeadLetter",
  "notify",
  "log",
  "observers",
  "telemetry",
] as const;

const DAY_MS = 86_400_000;

function conservationSettings(options: ConservationOptions = {}): BusSettings["conservation"] {
  rejectUnknownKeys("conservation", options, ["every"]);
  const bounds = { min: 1_000, max: 3_600_000 };
  return Object.freeze({ everyMs: milliseconds("conservation.every", options.every ?? "1m", bounds) });
}

/**
 * Merges options, environment variables and defaults, in this order of precedence. Throws one error that lists every
 * problem.
 */
export function readBusSettings(options: BusOptions, env: Environment): BusSettings {
  return allProblems("The options of createBus()", () => readSettings(options, env));
}

function readSettings(options: BusOptions, env: Environment): BusSettings {
  rejectUnknownKeys("createBus", options, KNOWN);
  const given = inPart(() => readEnvironment(env), undefined);
  const around = given ?? {};
  const schema = options.schema ?? around.schema ?? "sagabox";
  inPart(() => void quoteSchema(schema), undefined);
  const outbox = {
    ...(around.batchSize === undefined ? {} : { batchSize: around.batchSize }),
    ...(around.pollInterval === undefined ? {} : { pollInterval: around.pollInterval }),
    ...(around.optimistic === undefined ? {} : { optimistic: around.optimistic }),
    ...options.outbox,
  };
  const settings: BusSettings = Object.freeze({
    service: text("service", options.service, { pattern: /^[^\p{Cc}]+$/u }),
    database: options.database ?? around.databaseUrl ?? (given === undefined ? "" : noDatabase()),
    schema,
    worker: checkWorkerName(
      options.worker ?? around.workerId ?? `${options.service}-${randomToken().slice(0, 8)}`,
    ),
    routing: options.routing === undefined ? undefined : callable("routing", options.routing),
    leaseMs: milliseconds("lease", options.lease ?? around.lease ?? "30s", { min: 1_000, max: 3_600_000 }),
    maxPayloadBytes:
      options.maxPayloadBytes === undefined
        ? undefined
        : wholeNumber("maxPayloadBytes", options.maxPayloadBytes, { min: 1, max: 64 * 1_048_576 }),
    claimCheck: options.claimCheck,
    outbox,
    inbox: options.inbox ?? {},
    sagas: sagaSettings(options.sagas),
    audit: readAuditSettings(options.audit),
    conservation: conservationSettings(options.conservation),
    privacy: readPrivacySettings(options.privacy, {
      text: around.keyRing,
      file: env["SAGABOX_KEY_RING_FILE"], // a path, so that the ring can be reloaded
    }),
    shutdownMs: milliseconds("shutdownTimeout", options.shutdownTimeout ?? around.shutdownTimeout ?? "30s"),
    deadLetterMs: milliseconds("deadLetterRetention", options.deadLetterRetention ?? "14d", {
      min: DAY_MS,
      max: 3_650 * DAY_MS,
    }),
    inboxMs: milliseconds("inboxRetention", options.inboxRetention ?? "30d", {
      min: 7 * DAY_MS,
      max: 3_650 * DAY_MS,
    }),
    notices: inPart(() => readNoticeSettings(options.onDeadLetter, options.notify), {
      onDeadLetter: null,
      webhook: null,
    }),
    log: readLogSettings(options.log, around),
    host: around.host ?? "127.0.0.1",
    port: around.port,
    concurrency: around.concurrency,
  });
  checkPorts(options);
  // The parts read both again when they are wired. Reading them here reports their problems with all others.
  inPart(() => readClaimCheck(settings, outboxSettings(outbox), options.transport), undefined);
  return settings;
}

// For callers without the compiler: a missing method would otherwise fail later, with a confusing error.
function checkPorts({ transport, observers }: BusOptions): void {
  const methods: readonly string[] = ["open", "publish", "subscribe", "close"];
  const usable = transport === undefined || (hasAll(transport, methods) && isObject(transport.capabilities));
  if (!usable) {
    const remedy =
      "Pass the result of postgres(), rabbitmq(), kafka() or nats(), or a transport of your own.";
    refuse("OPTIONS_INVALID", `transport is not a transport. ${remedy}`, undefined);
  }
  if (observers === undefined) return;
  if (Array.isArray(observers) && observers.every((observer) => hasAll(observer, ["emit"]))) return;
  refuse("OPTIONS_INVALID", "observers must be an array of objects with an `emit` function.", undefined);
}

function hasAll(value: unknown, methods: readonly string[]): boolean {
  return isObject(value) && methods.every((method) => typeof value[method] === "function");
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null;
}

function noDatabase(): string {
  return refuse(
    "OPTIONS_INVALID",
    "No database is configured. Pass `database` (a pg.Pool or a postgres:// URL) or set DATABASE_URL.",
    "",
  );
}

function checkWorkerName(worker: string): string {
  if (isValidId(worker) && worker.length <= 200) return worker;
  return refuse("OPTIONS_INVALID", "worker must be a string of 1 to 200 characters.", "");
}
