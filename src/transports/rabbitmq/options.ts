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

export const prefixPattern = /^[A-Za-z0-9_-]{1,30}$/;

export const rabbitOptions = {
  /** `amqps://user:password@host:5671/vhost`, or several of a cluster, tried in turn. Default SAGABOX_RABBITMQ_URL. */
  url: option.value<string | readonly string[]>({ accepts: "string | string[]" }),
  /** Username and password; default those in the URL. A function is called for each connection, so they may change. */
  credentials: option.value<RabbitCredentials | (() => RabbitCredentials | Promise<RabbitCredentials>)>({
    accepts: "RabbitCredentials or a function",
  }),
  /** The virtual host. Default: the path of the URL, or "/". */
  vhost: option.value<string>({ accepts: "string" }),
  /** TLS settings for `amqps://` URLs. Default: the system's certificate authorities. */
  tls: option.value<RabbitTls>({ accepts: "RabbitTls", default: {} }),
  /** Allows an unencrypted connection to another machine. Default false. */
  allowInsecure: option.boolean({ default: false }),
  /** Prefix of every name at the broker. Default "dp". */
  prefix: option.string({ default: "dp", pattern: prefixPattern }),
  /** "quorum" queues are replicated; "classic" ones offer ten priorities to groups without order. Default "quorum". */
  queues: option.choice(["quorum", "classic"], { default: "quorum" }),
  /**
   * How messages are written: sagabox's own envelope, or CloudEvents 1.0 in structured or binary mode. All three are
   * always accepted when reading. Default SAGABOX_MESSAGE_FORMAT, or "sagabox".
   */
  format: option.choice(messageFormats, { default: "sagabox" }),
  /** Number of queues over which the keys of an ordered group are spread: a power of two up to 256. Default 8. */
  partitions: option.value<number>({
    accepts: "1, 2, 4 … 256",
    default: 8,
    check: (_, partitions) => checkPartitions(partitions),
  }),
  /** Topics that are published to every group through a fanout exchange. Default none. */
  broadcasts: option.value<readonly string[], ReadonlySet<string>>({
    accepts: "string[]",
    default: [],
    check: (_, topics) => checkTopics(topics as readonly string[]),
  }),
  /**
   * What happens to an event that no group has subscribed to: "reject" retries it and finally makes it a dead letter;
   * "drop" counts it as published. Commands are always rejected. Default "reject".
   */
  unrouted: option.choice(["reject", "drop"], { default: "reject" }),
  /** Groups that `depths` counts in addition to those this process is a member of. Default none. */
  watch: option.value<readonly WatchedGroup[]>({
    accepts: "WatchedGroup[]",
    default: [],
    check: (_, watch) => checkWatchedGroups(watch as readonly WatchedGroup[]),
  }),
  /** Messages after which a queue refuses more, so that publishing waits. Default: no limit. */
  maxLength: option.number({ min: 1 }),
  /**
   * Redeliveries, including those after restarts, after which the broker dead-letters a message. From half of this
   * limit on, each redelivery counts as an attempt, so that sagabox settles the message first. Default 1,000,000.
   */
  deliveryLimit: option.number({ default: 1_000_000, min: 20 }),
  /** How long a stream keeps messages. Default "7d". */
  streamRetention: option.duration({ default: "7d", min: 60_000 }),
  /** Largest data of a message in bytes. Default 16 MiB. */
  maxBytes: option.number({ default: 16 * 1_048_576, min: 1_024, max: 120 * 1_048_576 }),
  /** How many messages may be sent and not yet confirmed. Default 1000. */
  maxInFlight: option.number({ default: 1_000, min: 1, max: 65_535 }),
  /** How long to wait for a confirm. Default "10s". */
  confirmTimeout: option.duration({ default: "10s", min: 10 }),
  /** How long to wait for any other answer of the broker. Default "10s". */
  timeout: option.duration({ default: "10s", min: 10 }),
  /** Heartbeat interval. A connection that is silent for two intervals is closed. Default "10s". */
  heartbeat: option.duration({ default: "10s", min: 1_000 }),
  /** How often each member of a group checks whether it holds more than its share of the partitions. Default "5s". */
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

/** Checks a number of partitions. Groups bind to whole bits of the lane, so it must be a power of two. */
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
