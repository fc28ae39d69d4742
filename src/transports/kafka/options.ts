import { SagaboxError } from "../../errors/index.ts";
import {
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
import type { Duration } from "../../options/index.ts";
import type { MessageFormat } from "../../transport/index.ts";
import { saslSettings, tlsSettings, type SaslOptions, type SaslSettings } from "./security-options.ts";
import type { TlsOptions } from "./security-options.ts";
import { topicSettings, type TopicOptions, type TopicSettings } from "./topic-options.ts";

export interface KafkaOptions {
  /** Where to ask first: "host:port" of one or more brokers. Else SAGABOX_KAFKA_BROKERS. */
  readonly brokers?: readonly string[];
  /** Who we are in the broker's logs and quotas. Default "sagabox". */
  readonly clientId?: string;
  /** Stands before the name of every topic and group, e.g. "shop." Default none. */
  readonly prefix?: string;
  /**
   * How messages are written: our own envelope, or CloudEvents 1.0 in structured or binary mode. All three are always
   * read. Else SAGABOX_MESSAGE_FORMAT, else "sagabox".
   */
  readonly format?: MessageFormat;
  /** How topics are made. */
  readonly topics?: TopicOptions;
  /** true, or what Node's TLS needs: authorities, own certificate and key. Certificates are always verified. */
  readonly tls?: boolean | TlsOptions;
  /** Name and password; a function is asked at each connect. */
  readonly sasl?: SaslOptions;
  /** Allows brokers off this machine without TLS. Default false. */
  readonly allowInsecure?: boolean;
  /** Default "lz4". */
  readonly compression?: "none" | "gzip" | "snappy" | "lz4";
  /** How long a message waits for company. Default 10 ms. */
  readonly linger?: Duration | number;
  /** Records of one partition go out together up to this size, compressed. Default 32 KB. */
  readonly batchBytes?: number;
  /** What may wait to be sent, in bytes; more is answered with "unreachable". Default 64 MB. */
  readonly bufferBytes?: number;
  /** Requests on the way to one broker at once, 1 to 5. Default 5. */
  readonly maxInFlight?: number;
  /** How long a broker may take to answer, and how long an unanswered message is asked about again. Default "30s". */
  readonly timeout?: Duration | number;
  /** How long connecting may take. Default "5s". */
  readonly connectTimeout?: Duration | number;
  /** Without a heartbeat for this long, deliveries are given up: the broker's session timeout. Default "45s". */
  readonly sessionTimeout?: Duration | number;
  /** How long running work may take when a partition goes to another member; then it is aborted. Default "30s". */
  readonly handOver?: Duration | number;
  /** Least time between two commits of one consumer. Default 100 ms. */
  readonly commitInterval?: Duration | number;
  /** How long the broker may hold an empty fetch. Default 250 ms. */
  readonly fetchWait?: Duration | number;
  /** The delays of the retry topics, shortest first. Default ["10s", "60s", "300s"]. */
  readonly retrySteps?: readonly (Duration | number)[];
  /** Told of what is unsafe or odd, in a sentence for people. Default: a warning of the process. */
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

const KEYS: readonly (keyof KafkaOptions)[] = [
  ...(["brokers", "clientId", "prefix", "topics", "tls", "sasl", "allowInsecure", "compression"] as const),
  ...(["linger", "batchBytes", "bufferBytes", "maxInFlight", "timeout", "connectTimeout"] as const),
  ...(["sessionTimeout", "handOver", "commitInterval", "fetchWait", "retrySteps", "warn", "format"] as const),
];

export function kafkaSettings(options: KafkaOptions): KafkaSettings {
  rejectUnknownKeys("kafka", options, KEYS);
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
    throw new SagaboxError("OPTIONS_INVALID", 'kafka.brokers must be a list such as ["localhost:9092"].');
  return Object.freeze(brokers.map((broker: unknown, n) => parseBroker(`kafka.brokers[${n}]`, broker)));
}

function parseBroker(name: string, written: unknown): Broker {
  const found = /^(?:\[([0-9a-fA-F:]+)\]|([A-Za-z0-9._-]+)):(\d{1,5})$/.exec(text(name, written));
  const port = Number(found?.[3]);
  if (found === null || port < 1 || port > 65_535)
    throw new SagaboxError("OPTIONS_INVALID", `${name} must be "host:port".`);
  return Object.freeze({ host: found[1] ?? found[2] ?? "", port });
}

function assertLocal(brokers: readonly Broker[], mechanism: string | undefined): void {
  const away = brokers.find(({ host }) => !isLoopback(host));
  if (away === undefined) return;
  const instead =
    mechanism === "PLAIN"
      ? "PLAIN would show the password to everyone on the way."
      : "In a closed network, allowInsecure: true.";
  throw new SagaboxError(
    "OPTIONS_INVALID",
    `Broker ${away.host} is not on this machine, so kafka.tls is needed. ${instead}`,
  );
}

function parseRetrySteps(steps: readonly (Duration | number)[]): readonly number[] {
  if (!Array.isArray(steps) || steps.length === 0 || steps.length > 10)
    throw new SagaboxError("OPTIONS_INVALID", "kafka.retrySteps must be a list of 1 to 10 delays.");
  const ms = steps.map((step, n) => milliseconds(`kafka.retrySteps[${n}]`, step, { min: 1 }));
  if (ms.some((step, n) => n > 0 && step <= (ms[n - 1] ?? 0)))
    throw new SagaboxError("OPTIONS_INVALID", "kafka.retrySteps must grow from step to step.");
  return Object.freeze(ms);
}

function checkWarn(warn: unknown): (warning: string) => void {
  if (warn === undefined) return (warning) => process.emitWarning(warning, "SagaboxWarning");
  if (typeof warn !== "function") throw new SagaboxError("OPTIONS_INVALID", "kafka.warn must be a function.");
  return warn as (warning: string) => void;
}
