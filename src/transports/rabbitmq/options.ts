import type { SecureContextOptions } from "node:tls";
import { SagaboxError } from "../../errors/index.ts";
import {
  flag,
  isLoopback,
  messageFormats,
  option,
  type OptionsFrom,
  Problems,
  readOptions,
  rejectUnknownKeys,
  type SettingsFrom,
  text,
  wholeNumber,
} from "../../options/index.ts";
import { parseAddresses, type BrokerAddress } from "./address.ts";

export interface RabbitCredentials {
  readonly username: string;
  readonly password: string;
}

/** Certificate authorities and the client certificate. The server's certificate and its name are always verified. */
export interface RabbitTls extends Pick<SecureContextOptions, "ca" | "cert" | "key" | "passphrase" | "pfx"> {
  /** Expected name in the server's certificate, if it differs from the host. */
  readonly servername?: string;
}

/** A consumer group, of this or of another service. */
export interface WatchedGroup {
  readonly service: string;
  readonly group: string;
  readonly topics: readonly string[];
  /** Default true. */
  readonly ordered?: boolean;
}

export const prefixPattern = /^[A-Za-z0-9_-]{1,30}$/;

export const rabbitOptions = {
  /**
   * `amqps://user:password@host:5671/vhost`, or several addresses of one cluster, which are tried in turn. Default:
   * SAGABOX_RABBITMQ_URL.
   */
  url: option.value<string | readonly string[]>({ accepts: "string | string[]" }),
  /** Credentials, or a function that is called for each connection. Default: those in the address. */
  credentials: option.value<RabbitCredentials | (() => RabbitCredentials | Promise<RabbitCredentials>)>({
    accepts: "RabbitCredentials or a function",
  }),
  /** The virtual host. Default: the one in the address, or else "/". */
  vhost: option.value<string>({ accepts: "string" }),
  /** TLS settings, if every address begins with amqps. */
  tls: option.value<RabbitTls>({ accepts: "RabbitTls", default: {} }),
  /** Allows unencrypted connections to other machines. Default false. */
  allowInsecure: option.boolean({ default: false }),
  /** Begins every name at the broker. Default "dp". */
  prefix: option.string({ default: "dp", pattern: prefixPattern }),
  /** "quorum" queues are replicated; "classic" queues have ten priorities for unordered consumers. Default "quorum". */
  queues: option.choice(["quorum", "classic"], { default: "quorum" }),
  /**
   * Format of published messages: sagabox's envelope, or CloudEvents 1.0 in structured or binary mode. All three are
   * always read. Default: SAGABOX_MESSAGE_FORMAT, or else "sagabox".
   */
  format: option.choice(messageFormats, { default: "sagabox" }),
  /** Number of queues that share the keys of an ordered group: a power of two up to 256. Default 8. */
  partitions: option.value<number>({
    accepts: "1, 2, 4 … 256",
    default: 8,
    check: (_, partitions) => checkPartitions(partitions),
  }),
  /** Topics that every group receives through a fanout exchange. */
  broadcasts: option.value<readonly string[], ReadonlySet<string>>({
    accepts: "string[]",
    default: [],
    check: (_, topics) => checkTopics(topics as readonly string[]),
  }),
  /**
   * What happens to an event that no group has subscribed to: "reject" retries it and dead-letters it in the end,
   * "drop" counts it as published. Commands are always rejected. Default "reject".
   */
  unrouted: option.choice(["reject", "drop"], { default: "reject" }),
  /** Groups of other services whose queues count for the depth of a topic, alongside the groups of this process. */
  watch: option.value<readonly WatchedGroup[]>({
    accepts: "WatchedGroup[]",
    default: [],
    check: (_, watch) => checkWatchedGroups(watch as readonly WatchedGroup[]),
  }),
  /** Maximum length of a queue. A full queue refuses messages, and publishing waits. Default: no limit. */
  maxLength: option.number({ min: 1 }),
  /**
   * Redeliveries after which the broker itself gives up a message. sagabox dead-letters messages before that; restarts count as
   * redeliveries, so the limit is high. Default 1,000,000.
   */
  deliveryLimit: option.number({ default: 1_000_000, min: 20 }),
  /** How long a stream keeps messages. Default "7d". */
  streamRetention: option.duration({ default: "7d", min: 60_000 }),
  /** Maximum size of the data of a message, in bytes. Default 16,777,216. */
  maxBytes: option.number({ default: 16 * 1_048_576, min: 1_024, max: 120 * 1_048_576 }),
  /** How many messages may wait for their confirm. Default 1,000. */
  maxInFlight: option.number({ default: 1_000, min: 1, max: 65_535 }),
  /** How long to wait for a confirm. Default "10s". */
  confirmTimeout: option.duration({ default: "10s", min: 10 }),
  /** How long to wait for any other answer of the broker. Default "10s". */
  timeout: option.duration({ default: "10s", min: 10 }),
  /** A connection without traffic for two of these intervals is closed. Default "10s". */
  heartbeat: option.duration({ default: "10s", min: 1_000 }),
  /** How often the members of a group check whether one of them has too many partitions. Default "5s". */
  rebalanceInterval: option.duration({ default: "5s", min: 50 }),
};

/** Options of the transport `rabbitmq()`. */
export interface RabbitMQOptions extends OptionsFrom<typeof rabbitOptions> {}

export interface RabbitSettings extends Omit<
  SettingsFrom<typeof rabbitOptions>,
  "url" | "vhost" | "credentials"
> {
  readonly addresses: readonly BrokerAddress[];
  readonly credentials: () => RabbitCredentials | Promise<RabbitCredentials>;
}

export function rabbitSettings(options: RabbitMQOptions): RabbitSettings {
  const problems = new Problems();
  const settings = problems.collect(() => readOptions("rabbitmq", rabbitOptions, options));
  const { url, vhost } = options;
  const allowInsecure = options.allowInsecure === true;
  const addresses = problems.collect(() => parseAddresses(url, { vhost, allowInsecure })) ?? [];
  const credentials = problems.collect(() => resolveCredentials(options, addresses));
  const tls = problems.collect(() => resolveTls(options.tls, addresses));
  problems.throwIfAny("The options of rabbitmq()");
  return Object.freeze({ ...settings, addresses, credentials, tls }) as RabbitSettings;
}

/** Checks the number of partitions. It is a power of two, because a partition is a range of whole bits of the lane. */
export function checkPartitions(value: unknown): number {
  const partitions = wholeNumber("rabbitmq.partitions", value, { min: 1, max: 256 });
  if (Number.isInteger(Math.log2(partitions))) return partitions;
  throw new SagaboxError(
    "OPTIONS_INVALID",
    `rabbitmq.partitions must be a power of two such as 8 or 16, but is ${partitions}.`,
  );
}

function checkWatchedGroups(watch: readonly WatchedGroup[]): readonly WatchedGroup[] {
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

function checkTopics(topics: readonly string[]): ReadonlySet<string> {
  if (!Array.isArray(topics))
    throw new SagaboxError("OPTIONS_INVALID", "rabbitmq.broadcasts must be an array.");
  return new Set(topics.map((topic, n) => text(`rabbitmq.broadcasts[${n}]`, topic, { max: 249 })));
}

function resolveTls(tls: RabbitTls | undefined, addresses: readonly BrokerAddress[]): RabbitTls {
  if (tls === undefined) return Object.freeze({});
  if (addresses.some(({ secure }) => !secure)) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      "rabbitmq.tls is set, but an address begins with amqp://. Write amqps://.",
    );
  }
  rejectUnknownKeys("rabbitmq.tls", tls, ["ca", "cert", "key", "passphrase", "pfx", "servername"]);
  return Object.freeze({ ...tls });
}

// Runs for each connection, so that a rotated password is used at the next one.
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
