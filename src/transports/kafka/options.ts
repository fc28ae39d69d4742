import { SagaboxError } from "../../errors/index.ts";
import {
  type Duration,
  flag,
  inPart,
  isLoopback,
  messageFormats,
  milliseconds,
  oneOf,
  rejectUnknownKeys,
  text,
  wholeNumber,
} from "../../options/index.ts";
import type { MessageFormat } from "../../transport/index.ts";

export interface KafkaOptions {
  /** Bootstrap brokers, each "host:port". Default SAGABOX_KAFKA_BROKERS (comma-separated). */
  readonly brokers?: readonly string[];
  /** The client id in the broker's logs and quotas. Default "sagabox". */
  readonly clientId?: string;
  /** Prefix of every topic and group name, e.g. "shop.". Default none. */
  readonly prefix?: string;
  /**
   * How messages are value: sagabox's own envelope, or CloudEvents 1.0 in structured or binary mode. All three are
   * always accepted when reading. Default SAGABOX_MESSAGE_FORMAT, or "sagabox".
   */
  readonly format?: MessageFormat;
  /** How topics are created. */
  readonly topics?: TopicOptions;
  /** true, or TLS settings: authorities, client certificate and key. Certificates are always verified. Default off. */
  readonly tls?: boolean | TlsOptions;
  /** SASL mechanism and credentials. Default none. */
  readonly sasl?: SaslOptions;
  /** Allows brokers on other machines without TLS. Default false. */
  readonly allowInsecure?: boolean;
  /** Compression of record batches. Default "lz4". */
  readonly compression?: "none" | "gzip" | "snappy" | "lz4";
  /** How long a message waits so that more messages can join its batch. Default 10 ms. */
  readonly linger?: Duration | number;
  /** Largest batch of one partition in compressed bytes; a single larger message is sent alone. Default 32 KiB. */
  readonly batchBytes?: number;
  /** How many bytes may wait to be sent. Further messages get the outcome "unreachable". Default 64 MiB. */
  readonly bufferBytes?: number;
  /** Publish requests in flight to one broker, 1 to 5. Default 5. */
  readonly maxInFlight?: number;
  /** How long a broker may take to answer, and how long an unconfirmed batch is retried. Default "30s". */
  readonly timeout?: Duration | number;
  /** How long connecting to a broker may take. Default "5s". */
  readonly connectTimeout?: Duration | number;
  /** Deliveries are aborted after this long without a heartbeat. Use the broker's session timeout. Default "45s". */
  readonly sessionTimeout?: Duration | number;
  /** How long deliveries may run on when a partition moves to another member before they are aborted. Default "30s". */
  readonly handOver?: Duration | number;
  /** Shortest time between two offset commits of one consumer. Default 100 ms. */
  readonly commitInterval?: Duration | number;
  /** How long the broker waits for records before it answers a fetch. Default 250 ms. */
  readonly fetchWait?: Duration | number;
  /** Delays of the retry topics, 1 to 10, shortest first. Default ["10s", "60s", "300s"]. */
  readonly retrySteps?: readonly (Duration | number)[];
  /** Called with a sentence about an unsafe or unexpected state. Default: a Node process warning. */
  readonly warn?: (warning: string) => void;
}

export interface Broker {
  readonly host: string;
  readonly port: number;
}

export interface KafkaSettings {
  readonly brokers: readonly Broker[];
  readonly clientId: string;
  readonly prefix: string;
  readonly format: MessageFormat;
  readonly topics: TopicSettings;
  readonly tls: TlsOptions | undefined;
  readonly sasl: SaslSettings | undefined;
  readonly compression: "none" | "gzip" | "snappy" | "lz4";
  readonly lingerMs: number;
  readonly batchBytes: number;
  readonly bufferBytes: number;
  readonly maxInFlight: number;
  readonly timeoutMs: number;
  readonly connectTimeoutMs: number;
  readonly sessionTimeoutMs: number;
  readonly handOverMs: number;
  readonly commitIntervalMs: number;
  readonly fetchWaitMs: number;
  readonly retryStepsMs: readonly number[];
  readonly warn: (warning: string) => void;
}

const KAFKA_KEYS: readonly (keyof KafkaOptions)[] = [
  ...(["brokers", "clientId", "prefix", "topics", "tls", "sasl", "allowInsecure", "compression"] as const),
  ...(["linger", "batchBytes", "bufferBytes", "maxInFlight", "timeout", "connectTimeout"] as const),
  ...(["sessionTimeout", "handOver", "commitInterval", "fetchWait", "retrySteps", "warn", "format"] as const),
];

export function kafkaSettings(options: KafkaOptions): KafkaSettings {
  rejectUnknownKeys("kafka", options, KAFKA_KEYS);
  const brokers = inPart(() => parseBrokers(options.brokers), []);
  const tls = inPart(() => tlsSettings(options.tls), {});
  const insecure =
    options.allowInsecure === undefined ? false : flag("kafka.allowInsecure", options.allowInsecure);
  const sasl = inPart(() => saslSettings(options.sasl), undefined);
  if (tls === undefined && (!insecure || sasl?.mechanism === "PLAIN")) assertLocal(brokers, sasl?.mechanism);
  return Object.freeze({
    brokers,
    clientId: text("kafka.clientId", options.clientId ?? "sagabox", { pattern: /^[\w.-]+$/ }),
    prefix: text("kafka.prefix", options.prefix ?? "", { min: 0, max: 100, pattern: /^[A-Za-z0-9._-]*$/ }),
    format: oneOf("kafka.format", options.format ?? "sagabox", messageFormats),
    topics: topicSettings(options.topics),
    tls,
    sasl,
    compression: oneOf("kafka.compression", options.compression ?? "lz4", ["none", "gzip", "snappy", "lz4"]),
    lingerMs: milliseconds("kafka.linger", options.linger ?? 10, { max: 10_000 }),
    batchBytes: wholeNumber("kafka.batchBytes", options.batchBytes ?? 32_768, { min: 1, max: 16_777_216 }),
    bufferBytes: wholeNumber("kafka.bufferBytes", options.bufferBytes ?? 67_108_864, { min: 65_536 }),
    maxInFlight: wholeNumber("kafka.maxInFlight", options.maxInFlight ?? 5, { min: 1, max: 5 }),
    timeoutMs: milliseconds("kafka.timeout", options.timeout ?? "30s", { min: 100, max: 600_000 }),
    connectTimeoutMs: milliseconds("kafka.connectTimeout", options.connectTimeout ?? "5s", { min: 50 }),
    sessionTimeoutMs: milliseconds("kafka.sessionTimeout", options.sessionTimeout ?? "45s", { min: 1_000 }),
    handOverMs: milliseconds("kafka.handOver", options.handOver ?? "30s", { min: 100, max: 3_600_000 }),
    commitIntervalMs: milliseconds("kafka.commitInterval", options.commitInterval ?? 100, { max: 60_000 }),
    fetchWaitMs: milliseconds("kafka.fetchWait", options.fetchWait ?? 250, { min: 10, max: 10_000 }),
    retryStepsMs: parseRetrySteps(options.retrySteps ?? ["10s", "60s", "300s"]),
    warn: checkWarn(options.warn),
  });
}

function parseBrokers(brokers: unknown): readonly Broker[] {
  if (brokers === undefined) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      'kafka needs brokers: kafka({ brokers: ["host:9092"] }), or SAGABOX_KAFKA_BROKERS.',
    );
  }
  if (!Array.isArray(brokers) || brokers.length === 0)
    throw new SagaboxError("OPTIONS_INVALID", 'kafka.brokers must be an array such as ["localhost:9092"].');
  return Object.freeze(brokers.map((broker: unknown, n) => parseBroker(`kafka.brokers[${n}]`, broker)));
}

function parseBroker(name: string, value: unknown): Broker {
  const found = /^(?:\[([0-9a-fA-F:]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})$/.exec(text(name, value));
  const port = Number(found?.[3]);
  if (found === null || port < 1 || port > 65_535)
    throw new SagaboxError("OPTIONS_INVALID", `${name} must be "host:port".`);
  return Object.freeze({ host: found[1] ?? found[2] ?? "", port });
}

function assertLocal(brokers: readonly Broker[], mechanism: string | undefined): void {
  const remote = brokers.find(({ host }) => !isLoopback(host));
  if (remote === undefined) return;
  const instead =
    mechanism === "PLAIN"
      ? "PLAIN would send the password in clear text."
      : "In a closed network, set allowInsecure: true.";
  throw new SagaboxError(
    "OPTIONS_INVALID",
    `Broker ${remote.host} is not on this machine, so kafka.tls is needed. ${instead}`,
  );
}

function parseRetrySteps(steps: readonly (Duration | number)[]): readonly number[] {
  if (!Array.isArray(steps) || steps.length === 0 || steps.length > 10)
    throw new SagaboxError("OPTIONS_INVALID", "kafka.retrySteps must be an array of 1 to 10 delays.");
  const ms = steps.map((step, n) => milliseconds(`kafka.retrySteps[${n}]`, step, { min: 1 }));
  if (ms.some((step, n) => n > 0 && step <= (ms[n - 1] ?? 0)))
    throw new SagaboxError("OPTIONS_INVALID", "kafka.retrySteps must be in ascending order.");
  return Object.freeze(ms);
}

function checkWarn(warn: unknown): (warning: string) => void {
  if (warn === undefined) return (warning) => process.emitWarning(warning, "SagaboxWarning");
  if (typeof warn !== "function") throw new SagaboxError("OPTIONS_INVALID", "kafka.warn must be a function.");
  return warn as (warning: string) => void;
}

export interface TopicOptions {
  /** Whether to create missing topics. If false, they must exist and no create permission is needed. Default true. */
  readonly create?: boolean;
  /** Partitions of a new topic; at most this many members of a group can share it. Default 12. */
  readonly partitions?: number;
  /** Replicas of a new topic. Default 3, or the number of brokers if smaller. */
  readonly replication?: number;
  /** How many replicas must store a message before it is confirmed. Default 2 with 3 or more replicas, else 1. */
  readonly minInSync?: number;
  /** How long messages are kept. Default: the broker's setting. */
  readonly retention?: Duration | number;
  /** How long dead letters are kept. Default "30d". */
  readonly deadLetterRetention?: Duration | number;
  /** Largest record in bytes, including envelope and headers. Default 1,048,588, as in Kafka. */
  readonly maxBytes?: number;
}

export interface TopicSettings {
  readonly create: boolean;
  readonly partitions: number;
  readonly replication: number | undefined;
  readonly minInSync: number | undefined;
  readonly retentionMs: number | undefined;
  readonly deadLetterRetentionMs: number;
  readonly maxBytes: number;
}

const TOPIC_KEYS: readonly (keyof TopicOptions)[] = [
  ...(["create", "partitions", "replication", "minInSync", "retention"] as const),
  ...(["deadLetterRetention", "maxBytes"] as const),
];
const MAX_RETENTION_MS = Number.MAX_SAFE_INTEGER;

export function topicSettings(options: TopicOptions = {}): TopicSettings {
  rejectUnknownKeys("kafka.topics", options, TOPIC_KEYS);
  const { replication, minInSync, retention } = options;
  return Object.freeze({
    create: flag("kafka.topics.create", options.create ?? true),
    partitions: wholeNumber("kafka.topics.partitions", options.partitions ?? 12, { min: 1, max: 10_000 }),
    replication:
      replication === undefined
        ? undefined
        : wholeNumber("kafka.topics.replication", replication, { min: 1, max: 15 }),
    minInSync:
      minInSync === undefined
        ? undefined
        : wholeNumber("kafka.topics.minInSync", minInSync, { min: 1, max: 15 }),
    retentionMs:
      retention === undefined
        ? undefined
        : milliseconds("kafka.topics.retention", retention, { min: 1_000, max: MAX_RETENTION_MS }),
    deadLetterRetentionMs: milliseconds(
      "kafka.topics.deadLetterRetention",
      options.deadLetterRetention ?? "30d",
      { min: 1_000, max: MAX_RETENTION_MS },
    ),
    maxBytes: wholeNumber("kafka.topics.maxBytes", options.maxBytes ?? 1_048_588, {
      min: 1_024,
      max: 67_108_864,
    }),
  });
}

export interface TlsOptions {
  /** Certificate authorities to trust instead of the system's, in PEM. */
  readonly ca?: string | Buffer | readonly (string | Buffer)[];
  /** Client certificate in PEM, if the broker requires one. */
  readonly cert?: string | Buffer;
  readonly key?: string | Buffer;
  readonly passphrase?: string;
  /** The name in the broker's certificate, if it differs from the host. */
  readonly servername?: string;
}

export interface Credentials {
  readonly username: string;
  readonly password: string;
}

export interface SaslOptions {
  readonly mechanism: "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512";
  /** Username and password, or a function that is called at each connect so that changed passwords are picked up. */
  readonly credentials: Credentials | (() => Credentials | Promise<Credentials>);
}

export interface SaslSettings {
  readonly mechanism: "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512";
  readonly credentials: () => Promise<Credentials>;
}

const TLS_KEYS: readonly (keyof TlsOptions)[] = ["ca", "cert", "key", "passphrase", "servername"];

export function tlsSettings(tls: boolean | TlsOptions | undefined): TlsOptions | undefined {
  if (tls === undefined || tls === false) return undefined;
  if (typeof tls === "boolean") return flag("kafka.tls", tls) ? Object.freeze({}) : undefined;
  rejectUnknownKeys("kafka.tls", tls, TLS_KEYS);
  return Object.freeze({ ...tls });
}

export function saslSettings(sasl: SaslOptions | undefined): SaslSettings | undefined {
  if (sasl === undefined) return undefined;
  rejectUnknownKeys("kafka.sasl", sasl, ["mechanism", "credentials"]);
  const { credentials } = sasl;
  const mechanisms = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] as const;
  const mechanism = oneOf("kafka.sasl.mechanism", sasl.mechanism, mechanisms);
  if (typeof credentials === "function")
    return Object.freeze({ mechanism, credentials: async () => checkCredentials(await credentials()) });
  const fixed = checkCredentials(credentials);
  return Object.freeze({ mechanism, credentials: async () => fixed });
}

// Errors name the invalid option but never contain its value.
function checkCredentials(credentials: unknown): Credentials {
  if (typeof credentials !== "object" || credentials === null)
    throw new SagaboxError("OPTIONS_INVALID", "kafka.sasl.credentials must be { username, password }.");
  const { username, password } = credentials as Partial<Credentials>;
  return {
    username: text("kafka.sasl.credentials.username", username),
    password: text("kafka.sasl.credentials.password", password, { max: 10_000 }),
  };
}
