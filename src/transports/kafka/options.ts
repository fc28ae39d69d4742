import { SagaboxError } from "../../errors/index.ts";
import {
  type DurationOrMs,
  flag,
  isLoopback,
  messageFormats,
  milliseconds,
  oneOf,
  option,
  type OptionsFrom,
  Problems,
  readOptions,
  rejectUnknownKeys,
  saslMechanisms,
  type SettingsFrom,
  text,
} from "../../options/index.ts";

const MAX_RETENTION_MS = Number.MAX_SAFE_INTEGER;

export const topicOptions = {
  /** Whether to create missing topics. If false, they must exist and no create permission is needed. Default true. */
  create: option.boolean({ default: true }),
  /** Partitions of a new topic; at most this many members of a group can share it. Default 12. */
  partitions: option.number({ default: 12, min: 1, max: 10_000 }),
  /** Replicas of a new topic. Default 3, or the number of brokers if smaller. */
  replication: option.number({ min: 1, max: 15 }),
  /** How many replicas must store a message before the broker confirms it. Default 2 with 3 or more replicas, else 1. */
  minInSync: option.number({ min: 1, max: 15 }),
  /** How long messages are kept. Default: the broker's setting. */
  retention: option.duration({ min: 1_000, max: MAX_RETENTION_MS }),
  /** How long dead letters are kept. Default "30d". */
  deadLetterRetention: option.duration({ default: "30d", min: 1_000, max: MAX_RETENTION_MS }),
  /** Largest record in bytes, including envelope and headers. Default 1,048,588, as in Kafka. */
  maxBytes: option.number({ default: 1_048_588, min: 1_024, max: 67_108_864 }),
};

export interface TopicOptions extends OptionsFrom<typeof topicOptions> {}
export type TopicSettings = SettingsFrom<typeof topicOptions>;

export const kafkaOptions = {
  /** Bootstrap brokers, each "host:port". Default SAGABOX_KAFKA_BROKERS (comma-separated). */
  brokers: option.value<readonly string[], readonly Broker[]>({
    accepts: "string[]",
    check: (_, brokers) => parseBrokers(brokers),
  }),
  /** Client id that identifies this process in the broker's logs and quotas. Default "sagabox". */
  clientId: option.string({ default: "sagabox", pattern: /^[\w.-]+$/ }),
  /** Prefix of every topic and group name, e.g. "shop.". Default none. */
  prefix: option.string({ default: "", min: 0, max: 100, pattern: /^[A-Za-z0-9._-]*$/ }),
  /**
   * How messages are written: sagabox's own envelope, or CloudEvents 1.0 in structured or binary mode. All three are
   * always accepted when reading. Default SAGABOX_MESSAGE_FORMAT, or "sagabox".
   */
  format: option.choice(messageFormats, { default: "sagabox" }),
  /** How topics are created. */
  topics: option.value<TopicOptions, TopicSettings>({
    accepts: "TopicOptions",
    default: {},
    check: (name, topics) => readOptions(name, topicOptions, topics as TopicOptions),
  }),
  /** true, or TLS settings: authorities, client certificate and key. Certificates are always verified. Default off. */
  tls: option.value<boolean | TlsOptions, TlsOptions | undefined>({
    accepts: "boolean | TlsOptions",
    check: (_, tls) => tlsSettings(tls as boolean | TlsOptions),
  }),
  /** SASL mechanism and credentials. Default none. */
  sasl: option.value<SaslOptions, SaslSettings | undefined>({
    accepts: "SaslOptions",
    check: (_, sasl) => saslSettings(sasl as SaslOptions),
  }),
  /** Allows brokers on other machines without TLS. Default false. */
  allowInsecure: option.boolean({ default: false }),
  /** Compression of record batches. Default "lz4". */
  compression: option.choice(["none", "gzip", "snappy", "lz4"], { default: "lz4" }),
  /** How long a message waits so that more messages can join its batch. Default "10ms". */
  linger: option.duration({ default: "10ms", max: 10_000 }),
  /** Largest batch of one partition in compressed bytes. A larger message is sent in a batch of its own. Default 32 KiB. */
  batchBytes: option.number({ default: 32_768, min: 1, max: 16_777_216 }),
  /** How many bytes may wait to be sent. Further messages get the outcome "unreachable". Default 64 MiB. */
  bufferBytes: option.number({ default: 67_108_864, min: 65_536 }),
  /** Publish requests in flight to one broker, 1 to 5. Default 5. */
  maxInFlight: option.number({ default: 5, min: 1, max: 5 }),
  /** How long a broker may take to answer, and how long an unconfirmed batch is retried. Default "30s". */
  timeout: option.duration({ default: "30s", min: 100, max: 600_000 }),
  /** How long connecting to a broker may take. Default "5s". */
  connectTimeout: option.duration({ default: "5s", min: 50 }),
  /** Without a heartbeat for this long, deliveries are aborted. Set it to the broker's session timeout. Default "45s". */
  sessionTimeout: option.duration({ default: "45s", min: 1_000 }),
  /** How long deliveries may run on when a partition moves to another member before they are aborted. Default "30s". */
  handOver: option.duration({ default: "30s", min: 100, max: 3_600_000 }),
  /** Shortest time between two offset commits of one consumer. Default "100ms". */
  commitInterval: option.duration({ default: "100ms", max: 60_000 }),
  /** How long the broker waits for records before it answers a fetch. Default "250ms". */
  fetchWait: option.duration({ default: "250ms", min: 10, max: 10_000 }),
  /** Delays of the retry topics, 1 to 10, shortest first. Default ["10s", "60s", "300s"]. */
  retrySteps: option.value<readonly DurationOrMs[], readonly number[]>({
    accepts: "Duration[]",
    default: ["10s", "60s", "300s"],
    check: (_, steps) => parseRetrySteps(steps as readonly DurationOrMs[]),
  }),
  /** Called with a sentence about an unsafe or unexpected state. Default: a Node.js process warning. */
  warn: option.callback((warning: string): void => process.emitWarning(warning, "SagaboxWarning")),
};

/** Options of the transport `kafka()`. */
export interface KafkaOptions extends OptionsFrom<typeof kafkaOptions> {}

export interface Broker {
  readonly host: string;
  readonly port: number;
}

export interface KafkaSettings extends Omit<SettingsFrom<typeof kafkaOptions>, "brokers" | "retrySteps"> {
  readonly brokers: readonly Broker[];
  readonly retryStepsMs: readonly number[];
}

export function kafkaSettings(options: KafkaOptions): KafkaSettings {
  const problems = new Problems();
  const brokers = problems.collect(() => parseBrokers(options.brokers));
  const settings = problems.collect(() => readOptions("kafka", kafkaOptions, options));
  problems.collect(() => assertEncrypted(options));
  problems.throwIfAny("The options of kafka()");
  const { retrySteps, ...others } = settings as NonNullable<typeof settings>;
  return Object.freeze({ ...others, brokers: brokers ?? [], retryStepsMs: retrySteps });
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
  const match = /^(?:\[([0-9a-fA-F:]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})$/.exec(text(name, value));
  const port = Number(match?.[3]);
  if (match === null || port < 1 || port > 65_535)
    throw new SagaboxError("OPTIONS_INVALID", `${name} must be "host:port".`);
  return Object.freeze({ host: match[1] ?? match[2] ?? "", port });
}

// PLAIN sends the password in clear text, so it needs TLS even if `allowInsecure` is set.
function assertEncrypted({ brokers, tls, sasl, allowInsecure }: KafkaOptions): void {
  const isPlain = sasl?.mechanism === "PLAIN";
  if (tlsSettings(tls) !== undefined || (allowInsecure === true && !isPlain)) return;
  const remote = parseBrokers(brokers).find(({ host }) => !isLoopback(host));
  if (remote === undefined) return;
  const advice = isPlain
    ? "PLAIN would send the password in clear text."
    : "In a closed network, set allowInsecure: true.";
  throw new SagaboxError(
    "OPTIONS_INVALID",
    `Broker ${remote.host} is not on this machine, so kafka.tls is needed. ${advice}`,
  );
}

function parseRetrySteps(steps: readonly DurationOrMs[]): readonly number[] {
  if (!Array.isArray(steps) || steps.length === 0 || steps.length > 10)
    throw new SagaboxError("OPTIONS_INVALID", "kafka.retrySteps must be an array of 1 to 10 delays.");
  const ms = steps.map((step, n) => milliseconds(`kafka.retrySteps[${n}]`, step, { min: 1 }));
  if (ms.some((step, n) => n > 0 && step <= (ms[n - 1] ?? 0)))
    throw new SagaboxError("OPTIONS_INVALID", "kafka.retrySteps must be in ascending order.");
  return Object.freeze(ms);
}

export interface TlsOptions {
  /** Certificate authorities to trust instead of the system's, in PEM. */
  readonly ca?: string | Buffer | readonly (string | Buffer)[];
  /** Client certificate in PEM, if the broker requires one. */
  readonly cert?: string | Buffer;
  /** Private key of the client certificate in PEM. */
  readonly key?: string | Buffer;
  /** Passphrase of an encrypted private key. */
  readonly passphrase?: string;
  /** Expected name in the broker's certificate, if it differs from the host. */
  readonly servername?: string;
}

export interface Credentials {
  readonly username: string;
  readonly password: string;
}

export interface SaslOptions {
  readonly mechanism: (typeof saslMechanisms)[number];
  /** Username and password, or a function that is called at each connect so that changed passwords are picked up. */
  readonly credentials: Credentials | (() => Credentials | Promise<Credentials>);
}

export interface SaslSettings {
  readonly mechanism: (typeof saslMechanisms)[number];
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
  const mechanism = oneOf("kafka.sasl.mechanism", sasl.mechanism, saslMechanisms);
  if (typeof credentials === "function")
    return Object.freeze({ mechanism, credentials: async () => checkCredentials(await credentials()) });
  const checked = checkCredentials(credentials);
  return Object.freeze({ mechanism, credentials: async () => checked });
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
