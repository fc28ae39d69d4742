import type { SecureContextOptions } from "node:tls";
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
  type Duration,
} from "../../options/index.ts";
import type { MessageFormat } from "../../transport/index.ts";
import { parseAddresses, type BrokerAddress } from "./address.ts";

export interface RabbitCredentials {
  readonly username: string;
  readonly password: string;
}

/** What is trusted and who we are. The server's certificate and name are always verified. */
export interface RabbitTls extends Pick<SecureContextOptions, "ca" | "cert" | "key" | "passphrase" | "pfx"> {
  /** The name the certificate must carry, where it is not the host's. */
  readonly servername?: string;
}

/** A group that may live in another service. */
export interface WatchedGroup {
  readonly service: string;
  readonly group: string;
  readonly topics: readonly string[];
  /** Default true. */
  readonly ordered?: boolean;
}

export interface RabbitMQOptions {
  /** `amqps://user:password@host:5671/vhost`, or several of one cluster, tried in turn. Else SAGABOX_RABBITMQ_URL. */
  readonly url?: string | readonly string[];
  /** Instead of those in the address. A function is called for each connection, so that they may change. */
  readonly credentials?: RabbitCredentials | (() => RabbitCredentials | Promise<RabbitCredentials>);
  /** Instead of the one in the address. Default "/". */
  readonly vhost?: string;
  readonly tls?: RabbitTls;
  /** Allow an unencrypted connection to another machine. Default false. */
  readonly allowInsecure?: boolean;
  /** Begins every name at the broker. Default "dp". */
  readonly prefix?: string;
  /** Replicated and safe, or with ten priorities where order per key was given up. Default "quorum". */
  readonly queues?: "quorum" | "classic";
  /**
   * How messages are written: our own envelope, or CloudEvents 1.0 in structured or binary mode. All three are always
   * read. Else SAGABOX_MESSAGE_FORMAT, else "sagabox".
   */
  readonly format?: MessageFormat;
  /** How many queues share the keys of an ordered group: a power of two up to 256. Default 8. */
  readonly partitions?: number;
  /** Topics that go to every group through a fanout exchange. */
  readonly broadcasts?: readonly string[];
  /**
   * What becomes of an event no group has subscribed to yet: refused, tried again and in the end a dead letter, or
   * dropped as published. Commands are always refused. Default "reject".
   */
  readonly unrouted?: "reject" | "drop";
  /** Groups whose queues `depths` looks at, beside those this process itself is a member of. */
  readonly watch?: readonly WatchedGroup[];
  /** A queue that holds so many refuses more, and publishing waits. Default: no limit. */
  readonly maxLength?: number;
  /** After so many redeliveries the broker itself puts a message aside; we do so before. Default 1,000,000: restarts count as well. */
  readonly deliveryLimit?: number;
  /** How long a stream keeps messages. Default "7d". */
  readonly streamRetention?: Duration | number;
  /** The largest data of a message in bytes. Default 16 MB. */
  readonly maxBytes?: number;
  /** How many messages are on the way without a confirm. Default 1000. */
  readonly maxInFlight?: number;
  /** How long to wait for a confirm. Default "10s". */
  readonly confirmTimeout?: Duration | number;
  /** How long to wait for any other answer of the broker. Default "10s". */
  readonly timeout?: Duration | number;
  /** A peer that is silent for two of these is gone. Default "10s". */
  readonly heartbeat?: Duration | number;
  /** How often the members of a group look whether one of them has too many partitions. Default "5s". */
  readonly rebalanceInterval?: Duration | number;
}

export interface RabbitSettings {
  readonly addresses: readonly BrokerAddress[];
  readonly credentials: () => RabbitCredentials | Promise<RabbitCredentials>;
  readonly tls: RabbitTls;
  readonly prefix: string;
  readonly broadcasts: ReadonlySet<string>;
  readonly unrouted: "reject" | "drop";
  readonly queues: "quorum" | "classic";
  readonly format: MessageFormat;
  readonly partitions: number;
  readonly watch: readonly WatchedGroup[];
  readonly maxLength: number | undefined;
  readonly deliveryLimit: number;
  readonly streamRetentionMs: number;
  readonly maxBytes: number;
  readonly maxInFlight: number;
  readonly confirmMs: number;
  readonly timeoutMs: number;
  readonly heartbeatMs: number;
  readonly rebalanceMs: number;
}

const known = [
  "url",
  "credentials",
  "vhost",
  "tls",
  "allowInsecure",
  "prefix",
  "queues",
  "format",
  "partitions",
  "broadcasts",
  "unrouted",
  "watch",
  "maxLength",
  "deliveryLimit",
  "streamRetention",
  "maxBytes",
  "maxInFlight",
  "confirmTimeout",
  "timeout",
  "heartbeat",
  "rebalanceInterval",
];

export const prefixPattern = /^[A-Za-z0-9_-]{1,30}$/;

export function rabbitSettings(options: RabbitMQOptions): RabbitSettings {
  rejectUnknownKeys("rabbitmq", options, known);
  const { maxLength } = options;
  const allowInsecure = flag("rabbitmq.allowInsecure", options.allowInsecure ?? false);
  const addresses = inPart(() => parseAddresses(options.url, { vhost: options.vhost, allowInsecure }), []);
  return Object.freeze({
    addresses,
    credentials: resolveCredentials(options, addresses),
    tls: resolveTls(options.tls, addresses),
    prefix: text("rabbitmq.prefix", options.prefix ?? "dp", { pattern: prefixPattern }),
    broadcasts: checkTopics(options.broadcasts),
    unrouted: oneOf("rabbitmq.unrouted", options.unrouted ?? "reject", ["reject", "drop"]),
    queues: oneOf("rabbitmq.queues", options.queues ?? "quorum", ["quorum", "classic"]),
    format: oneOf("rabbitmq.format", options.format ?? "sagabox", messageFormats),
    partitions: checkPartitions(options.partitions ?? 8),
    watch: checkWatchedGroups(options.watch),
    maxLength: maxLength === undefined ? undefined : wholeNumber("rabbitmq.maxLength", maxLength, { min: 1 }),
    deliveryLimit: wholeNumber("rabbitmq.deliveryLimit", options.deliveryLimit ?? 1_000_000, { min: 20 }),
    streamRetentionMs: parseDuration("streamRetention", options.streamRetention ?? "7d", 60_000),
    maxBytes: wholeNumber("rabbitmq.maxBytes", options.maxBytes ?? 16 * 1_048_576, {
      min: 1_024,
      max: 120 * 1_048_576,
    }),
    maxInFlight: wholeNumber("rabbitmq.maxInFlight", options.maxInFlight ?? 1_000, { min: 1, max: 65_535 }),
    confirmMs: parseDuration("confirmTimeout", options.confirmTimeout ?? "10s", 10),
    timeoutMs: parseDuration("timeout", options.timeout ?? "10s", 10),
    heartbeatMs: parseDuration("heartbeat", options.heartbeat ?? "10s", 1_000),
    rebalanceMs: parseDuration("rebalanceInterval", options.rebalanceInterval ?? "5s", 50),
  });
}

const parseDuration = (name: string, value: Duration | number, min: number): number =>
  milliseconds(`rabbitmq.${name}`, value, { min });

/** Groups read whole bits of the lane, so only powers of two can be had. */
export function checkPartitions(value: unknown): number {
  const partitions = wholeNumber("rabbitmq.partitions", value, { min: 1, max: 256 });
  if (Number.isInteger(Math.log2(partitions))) return partitions;
  throw new SagaboxError(
    "OPTIONS_INVALID",
    `rabbitmq.partitions must be a power of two such as 8 or 16, but is ${partitions}.`,
  );
}

function checkWatchedGroups(watch: readonly WatchedGroup[] = []): readonly WatchedGroup[] {
  if (!Array.isArray(watch)) throw new SagaboxError("OPTIONS_INVALID", "rabbitmq.watch must be a list.");
  return watch.map((group: WatchedGroup, n) => {
    const where = `rabbitmq.watch[${n}]`;
    rejectUnknownKeys(where, group, ["service", "group", "topics", "ordered"]);
    return Object.freeze({
      service: text(`${where}.service`, group.service),
      group: text(`${where}.group`, group.group),
      topics: group.topics.map((topic) => text(`${where}.topics`, topic, { max: 249 })),
      ordered: flag(`${where}.ordered`, group.ordered ?? true),
    });
  });
}

function checkTopics(topics: readonly string[] = []): ReadonlySet<string> {
  if (!Array.isArray(topics))
    throw new SagaboxError("OPTIONS_INVALID", "rabbitmq.broadcasts must be a list.");
  return new Set(topics.map((topic, n) => text(`rabbitmq.broadcasts[${n}]`, topic, { max: 249 })));
}

function resolveTls(tls: RabbitTls | undefined, addresses: readonly BrokerAddress[]): RabbitTls {
  if (tls === undefined) return Object.freeze({});
  if (addresses.some(({ secure }) => !secure)) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      "rabbitmq.tls is given, but an address begins with amqp://. Write amqps://.",
    );
  }
  rejectUnknownKeys("rabbitmq.tls", tls, ["ca", "cert", "key", "passphrase", "pfx", "servername"]);
  return Object.freeze({ ...tls });
}

// Asked for at each connection, so a rotated password is used at the next one.
function resolveCredentials(
  { credentials }: RabbitMQOptions,
  addresses: readonly BrokerAddress[],
): RabbitSettings["credentials"] {
  const checkCredentials = ({ username, password }: RabbitCredentials): RabbitCredentials => ({
    username: text("rabbitmq.credentials.username", username),
    password: text("rabbitmq.credentials.password", password, { max: 4_096 }),
  });
  if (typeof credentials === "function") return async () => checkCredentials(await credentials());
  const named = addresses.map((address) => address.credentials);
  if (new Set(named.map((one) => JSON.stringify(one))).size > 1 && credentials === undefined) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      "rabbitmq.url: all addresses must name the same user and password.",
    );
  }
  if (
    credentials === undefined &&
    named[0] === undefined &&
    !addresses.every(({ hostname }) => isLoopback(hostname))
  ) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      "rabbitmq needs credentials for a broker on another machine: in its url, or as `credentials`.",
    );
  }
  const given = credentials ?? named[0] ?? { username: "guest", password: "guest" };
  if (credentials !== undefined) {
    rejectUnknownKeys("rabbitmq.credentials", credentials, ["username", "password"]);
  }
  const fixed = checkCredentials(given);
  return () => fixed;
}
