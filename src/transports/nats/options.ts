import { SagaboxError } from "../../errors/index.ts";
import {
  messageFormats,
  option,
  Problems,
  readOptions,
  type OptionsFrom,
  type SettingsFrom,
} from "../../options/index.ts";
import { checkCredentials, type CredentialSource } from "./credentials.ts";
import { checkServers, checkTls, type NatsTls } from "./servers.ts";

const DAY_MS = 86_400_000;

export const natsOptions = {
  /**
   * Server addresses, such as "nats://127.0.0.1:4222"; several for a cluster. Default: SAGABOX_NATS_URL, or else that
   * address.
   */
  servers: option.value<string | readonly string[]>({
    accepts: "string | string[]",
    default: "nats://127.0.0.1:4222",
  }),
  /** Credentials, or a function that returns them and is called for each connection. */
  credentials: option.value<CredentialSource, CredentialSource | undefined>({
    accepts: "CredentialSource",
    check: (_, credentials) => checkCredentials(credentials as CredentialSource),
  }),
  /** Use TLS and verify the server against these certificate authorities; `true` uses those of Node.js. */
  tls: option.value<NatsTls | true, NatsTls | undefined>({
    accepts: "NatsTls | true",
    check: (_, tls) => checkTls(tls as NatsTls | true),
  }),
  /** Allow connections without TLS to other hosts. Default false. */
  allowInsecure: option.boolean({ default: false }),
  /** First token of all subject and stream names. Default "dp". */
  prefix: option.string({ default: "dp", max: 32, pattern: /^[A-Za-z0-9_-]+$/ }),
  /**
   * Format of published messages: sagabox's envelope, or CloudEvents 1.0 in structured or binary mode. All three are
   * always read. Default: SAGABOX_MESSAGE_FORMAT, or else "sagabox".
   */
  format: option.choice(messageFormats, { default: "sagabox" }),
  /** Number of partition subjects per topic, 1 to 256; fixed once the stream exists. Default 8. */
  partitions: option.number({ default: 8, min: 1, max: 256 }),
  /** Replicas of each stream in a cluster. Default 1. */
  replicas: option.number({ default: 1, min: 1, max: 5 }),
  /** How long the server detects duplicate publishes. Default "2m". */
  duplicateWindow: option.duration({ default: "2m", min: 100, max: 7 * DAY_MS }),
  /** How long messages are kept, handled or not; 0 keeps them forever. Default "7d". */
  maxAge: option.duration({ default: "7d", max: 3_650 * DAY_MS }),
  /** Compress stored messages, if the server supports it (2.10 and later). Default false. */
  compress: option.boolean({ default: false }),
  /** Maximum size of the message stream in bytes. When it is reached, publishing waits. Default -1 (no limit). */
  maxStreamBytes: option.number({ default: -1, min: -1, max: Number.MAX_SAFE_INTEGER }),
  /** How long dead letters are kept; 0 keeps them forever. Default "30d". */
  deadLetterMaxAge: option.duration({ default: "30d", max: 3_650 * DAY_MS }),
  /** A member without a heartbeat for this long loses its partitions to the others. Default "10s". */
  lease: option.duration({ default: "10s", min: 500, max: 3_600_000 }),
  /**
   * How long the server waits for an acknowledgement or a progress report before it redelivers a message. Default
   * "30s".
   */
  ackWait: option.duration({ default: "30s", min: 1_000, max: DAY_MS }),
  /** Timeout of one request to the server. Default "5s". */
  timeout: option.duration({ default: "5s", min: 100, max: 600_000 }),
  /** First tokens of the reply subjects, so that permissions can name them. Default "_INBOX". */
  inboxPrefix: option.string({
    default: "_INBOX",
    max: 64,
    pattern: /^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$/,
  }),
  /**
   * Called with a text for operators when the transport detects an unsafe condition. Default: `process.emitWarning`.
   */
  warn: option.callback((warning: string): void => process.emitWarning(warning, "SagaboxWarning")),
};

/** Options of the transport `nats()`. */
export interface NatsOptions extends OptionsFrom<typeof natsOptions> {}

export interface NatsSettings extends Omit<SettingsFrom<typeof natsOptions>, "servers"> {
  readonly servers: readonly string[];
}

export function natsSettings(options: NatsOptions = {}): NatsSettings {
  const problems = new Problems();
  const settings = problems.collect(() => readOptions("nats", natsOptions, options));
  const servers = problems.collect(() => {
    const { servers: addresses = natsOptions.servers.default ?? [], tls, allowInsecure } = options;
    return checkServers(addresses, checkTls(tls), allowInsecure === true);
  });
  if (settings !== undefined) problems.collect(() => checkAges(settings));
  problems.throwIfAny("The options of nats()");
  return Object.freeze({ ...(settings as NonNullable<typeof settings>), servers: servers ?? [] });
}

function checkAges({ maxAgeMs, duplicateWindowMs }: SettingsFrom<typeof natsOptions>): void {
  if (maxAgeMs === 0 || maxAgeMs >= duplicateWindowMs) return;
  throw new SagaboxError("OPTIONS_INVALID", "nats.maxAge must not be shorter than nats.duplicateWindow.");
}
