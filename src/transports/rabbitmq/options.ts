import type { SecureContextOptions } from "node:tls";
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

export interface RabbitCredentials {
  readonly username: string;
  readonly password: string;
}

/** TLS settings. The server's certificate and name are always verified. */
export interface RabbitTls extends Pick<SecureContextOptions, "ca" | "cert" | "key" | "passphrase" | "pfx"> {
  /** The name in the broker's certificate, if it differs from the host. */
  readonly servername?: string;
}

/** A consumer group, also of another service, whose queues `depths` counts. */
export interface WatchedGroup {
  readonly service: string;
  readonly group: string;
  readonly topics: readonly string[];
  /** Whether the group keeps the order of each key. Default true. */
  readonly ordered?: boolean;
}

export interface RabbitMQOptions {
  /** `amqps://user:password@host:5671/vhost`, or several of a cluster, tried in turn. Default SAGABOX_RABBITMQ_URL. */
  readonly url?: string | readonly string[];
  /** Username and password; default those in the URL. A function is called for each connection, so they may change. */
  readonly credentials?: RabbitCredentials | (() => RabbitCredentials | Promise<RabbitCredentials>);
  /** The virtual host. Default: the path of the URL, or "/". */
  readonly vhost?: string;
  /** TLS settings for `amqps://` URLs. Default: the system's certificate authorities. */
  readonly tls?: RabbitTls;
  /** Allows an unencrypted connection to another machine. Default false. */
  readonly allowInsecure?: boolean;
  /** Prefix of every name at the broker. Default "dp". */
  readonly prefix?: string;
  /** "quorum" queues are replicated; "classic" ones offer ten priorities to groups without order. Default "quorum". */
  readonly queues?: "quorum" | "classic";
  /**
   * How messages are written: sagabox's own envelope, or CloudEvents 1.0 in structured or binary mode. All three are
   * always accepted when reading. Default SAGABOX_MESSAGE_FORMAT, or "sagabox".
   */
  readonly format?: MessageFormat;
  /** Number of queues over which the keys of an ordered group are spread: a power of two up to 256. Default 8. */
  readonly partitions?: number;
  /** Topics that are published to every group through a fanout exchange. Default none. */
  readonly broadcasts?: readonly string[];
  /**
   * What happens to an event that no group has subscribed to: "reject" retries it and finally makes it a dead letter;
   * "drop" counts it as published. Commands are always rejected. Default "reject".
   */
  readonly unrouted?: "reject" | "drop";
  /** Groups that `depths` counts in addition to those this process is a member of. Default none. */
  readonly watch?: readonly WatchedGroup[];
  /** Messages after which a queue refuses more, so that publishing waits. Default: no limit. */
  readonly maxLength?: number;
  /**
   * Redeliveries, including those after restarts, after which the broker dead-letters a message. From half of this
   * limit on, each redelivery counts as an attempt, so that sagabox settles the message first. Default 1,000,000.
   */
  readonly deliveryLimit?: number;
  /** How long a stream keeps messages. Default "7d". */
  readonly streamRetention?: Duration | number;
  /** Largest data of a message in bytes. Default 16 MiB. */
  readonly maxBytes?: number;
  /** How many messages may be sent and not yet confirmed. Default 1000. */
  readonly maxInFlight?: number;
  /** How long to wait for a confirm. Default "10s". */
  readonly confirmTimeout?: Duration | number;
  /** How long to wait for any other answer of the broker. Default "10s". */
  readonly timeout?: Duration | number;
  /** Heartbeat interval. A connection that is silent for two intervals is closed. Default "10s". */
  readonly heartbeat?: Duration | number;
  /** How often each member of a group checks whether it holds more than its share of the partitions. Default "5s". */
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

const RABBITMQ_KEYS = [
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
  rejectUnknownKeys("rabbitmq", options, RABBITMQ_KEYS);
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

/** Checks a number of partitions. Groups bind to whole bits of the lane, so it must be a power of two. */
export function checkPartitions(value: unknown): number {
  const partitions = wholeNumber("rabbitmq.partitions", value, { min: 1, max: 256 });
  if (Number.isInteger(Math.log2(partitions))) return partitions;
  throw new SagaboxError(
    "OPTIONS_INVALID",
    `rabbitmq.partitions must be a power of two such as 8 or 16, but is ${partitions}.`,
  );
}

function checkWatchedGroups(watch: readonly WatchedGroup[] = []): readonly WatchedGroup[] {
  if (!Array.isArray(watch)) throw new SagaboxError("OPTIONS_INVALID", "rabbitmq.watch must be an array.");
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
    throw new SagaboxError("OPTIONS_INVALID", "rabbitmq.broadcasts must be an array.");
  return new Set(topics.map((topic, n) => text(`rabbitmq.broadcasts[${n}]`, topic, { max: 249 })));
}

function resolveTls(tls: RabbitTls | undefined, addresses: readonly BrokerAddress[]): RabbitTls {
  if (tls === undefined) return Object.freeze({});
  if (addresses.some(({ secure }) => !secure)) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      "rabbitmq.tls is set, but an address begins with amqp://. Use amqps://.",
    );
  }
  rejectUnknownKeys("rabbitmq.tls", tls, ["ca", "cert", "key", "passphrase", "pfx", "servername"]);
  return Object.freeze({ ...tls });
}

// A credentials function is called at each connection, so a rotated password is used from the next one on.
function resolveCredentials(
  { credentials }: RabbitMQOptions,
  addresses: readonly BrokerAddress[],
): RabbitSettings["credentials"] {
  const checkCredentials = ({ username, password }: RabbitCredentials): RabbitCredentials => ({
    username: text("rabbitmq.credentials.username", username),
    password: text("rabbitmq.credentials.password", password, { max: 4_096 }),
  });
  if (typeof credentials === "function") return async () => checkCredentials(await credentials());
  const inUrls = addresses.map((address) => address.credentials);
  if (new Set(inUrls.map((one) => JSON.stringify(one))).size > 1 && credentials === undefined) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      "rabbitmq.url: all addresses must name the same user and password.",
    );
  }
  if (
    credentials === undefined &&
    inUrls[0] === undefined &&
    !addresses.every(({ hostname }) => isLoopback(hostname))
  ) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      "rabbitmq needs credentials for a broker on another machine: in its url, or as `credentials`.",
    );
  }
  const chosen = credentials ?? inUrls[0] ?? { username: "guest", password: "guest" };
  if (credentials !== undefined) {
    rejectUnknownKeys("rabbitmq.credentials", credentials, ["username", "password"]);
  }
  const fixed = checkCredentials(chosen);
  return () => fixed;
}

export interface BrokerAddress {
  readonly secure: boolean;
  readonly hostname: string;
  readonly port: number;
  readonly vhost: string;
  readonly credentials: { readonly username: string; readonly password: string } | undefined;
}

interface AddressRules {
  readonly vhost: string | undefined;
  readonly allowInsecure: boolean;
}

/** Parses broker URLs. Throws OPTIONS_INVALID; its messages never contain the URL, which may hold a password. */
export function parseAddresses(
  url: string | readonly string[] | undefined,
  rules: AddressRules,
): readonly BrokerAddress[] {
  if (url === undefined) {
    throw invalidAddress(
      'rabbitmq needs an address: rabbitmq({ url: "amqps://…" }), or SAGABOX_RABBITMQ_URL.',
    );
  }
  const urls: readonly unknown[] = Array.isArray(url) ? url : [url];
  if (urls.length === 0) throw invalidAddress("rabbitmq.url must name at least one broker.");
  return Object.freeze(urls.map((one) => parseAddress(one, rules)));
}

function parseAddress(value: unknown, rules: AddressRules): BrokerAddress {
  const url = parseUrl(text("rabbitmq.url", value, { max: 2_048 }));
  const hostname = url.hostname.replaceAll(/^\[|\]$/g, "");
  const secure = url.protocol === "amqps:";
  if (!secure && !isLoopback(hostname) && !rules.allowInsecure) {
    throw invalidAddress(
      `rabbitmq.url names another machine without encryption. Use amqps://, or set allowInsecure: true.`,
    );
  }
  if (url.search !== "")
    throw invalidAddress("rabbitmq.url must not have query parameters. Use options instead.");
  const vhost = rules.vhost ?? (url.pathname.length > 1 ? decodeURIComponent(url.pathname.slice(1)) : "/");
  return Object.freeze({
    secure,
    hostname,
    port: url.port === "" ? (secure ? 5671 : 5672) : Number(url.port),
    vhost: text("rabbitmq.vhost", vhost),
    credentials:
      url.username === ""
        ? undefined
        : { username: decodeURIComponent(url.username), password: decodeURIComponent(url.password) },
  });
}

function parseUrl(value: string): URL {
  const url = URL.canParse(value) ? new URL(value) : undefined;
  if (url !== undefined && (url.protocol === "amqp:" || url.protocol === "amqps:") && url.hostname !== "") {
    return url;
  }
  throw invalidAddress("rabbitmq.url must look like amqps://user:password@host:5671/vhost.");
}

function invalidAddress(message: string): SagaboxError {
  return new SagaboxError("OPTIONS_INVALID", message);
}
