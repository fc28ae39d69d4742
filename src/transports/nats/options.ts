import { SagaboxError } from "../../errors/index.ts";
import {
  flag,
  inPart,
  messageFormats,
  milliseconds,
  oneOf,
  rejectUnknownKeys,
  text,
  wholeNumber,
  type Duration,
} from "../../options/index.ts";
import type { MessageFormat } from "../../transport/index.ts";
import { checkCredentials, type CredentialSource } from "./credentials.ts";
import { checkServers, checkTls, type NatsTls } from "./servers.ts";

export interface NatsOptions {
  /**
   * Server addresses, such as "nats://127.0.0.1:4222"; several for a cluster. Default: SAGABOX_NATS_URL, or else that
   * address.
   */
  readonly servers?: string | readonly string[];
  /** Credentials, or a function that returns them and is called for each connection. */
  readonly credentials?: CredentialSource;
  /** Use TLS and verify the server against these certificate authorities; `true` uses those of Node.js. */
  readonly tls?: NatsTls | true;
  /** Allow connections without TLS to other hosts. Default false. */
  readonly allowInsecure?: boolean;
  /** First token of all subject and stream names. Default "dp". */
  readonly prefix?: string;
  /**
   * Format of published messages: sagabox's envelope, or CloudEvents 1.0 in structured or binary mode. All three are
   * always read. Default: SAGABOX_MESSAGE_FORMAT, or else "sagabox".
   */
  readonly format?: MessageFormat;
  /** Number of partition subjects per topic, 1 to 256; fixed once the stream exists. Default 8. */
  readonly partitions?: number;
  /** Replicas of each stream in a cluster. Default 1. */
  readonly replicas?: number;
  /** How long the server detects duplicate publishes. Default "2m". */
  readonly duplicateWindow?: Duration | number;
  /** How long messages are kept, handled or not; 0 keeps them forever. Default "7d". */
  readonly maxAge?: Duration | number;
  /** Compress stored messages, if the server supports it (2.10 and later). Default false. */
  readonly compress?: boolean;
  /** Maximum size of the message stream in bytes. When it is reached, publishing waits. Default -1 (no limit). */
  readonly maxStreamBytes?: number;
  /** How long dead letters are kept; 0 keeps them forever. Default "30d". */
  readonly deadLetterMaxAge?: Duration | number;
  /** A member without a heartbeat for this long loses its partitions to the others. Default "10s". */
  readonly lease?: Duration | number;
  /**
   * How long the server waits for an acknowledgement or a progress report before it redelivers a message. Default
   * "30s".
   */
  readonly ackWait?: Duration | number;
  /** Timeout of one request to the server. Default "5s". */
  readonly timeout?: Duration | number;
  /** First tokens of the reply subjects, so that permissions can name them. Default "_INBOX". */
  readonly inboxPrefix?: string;
  /**
   * Called with a text for operators when the transport detects an unsafe condition. Default: `process.emitWarning`.
   */
  readonly warn?: (warning: string) => void;
}

export interface NatsSettings {
  readonly servers: readonly string[];
  readonly credentials: CredentialSource | undefined;
  readonly tls: NatsTls | undefined;
  readonly prefix: string;
  readonly format: MessageFormat;
  readonly partitions: number;
  readonly replicas: number;
  readonly duplicateWindowMs: number;
  readonly maxAgeMs: number;
  readonly compress: boolean;
  readonly maxStreamBytes: number;
  readonly deadLetterMaxAgeMs: number;
  readonly leaseMs: number;
  readonly ackWaitMs: number;
  readonly timeoutMs: number;
  readonly inboxPrefix: string;
  readonly warn: (warning: string) => void;
}

const known = [
  "servers",
  "credentials",
  "tls",
  "allowInsecure",
  "prefix",
  "format",
  "partitions",
  "replicas",
  "duplicateWindow",
  "maxAge",
  "compress",
  "maxStreamBytes",
  "deadLetterMaxAge",
  "lease",
  "ackWait",
  "timeout",
  "inboxPrefix",
  "warn",
];

const dayMs = 86_400_000;
const years = { max: 3_650 * dayMs };

export function natsSettings(options: NatsOptions = {}): NatsSettings {
  rejectUnknownKeys("nats", options, known);
  const tls = checkTls(options.tls);
  const allowInsecure = flag("nats.allowInsecure", options.allowInsecure ?? false);
  const maxAgeMs = milliseconds("nats.maxAge", options.maxAge ?? "7d", years);
  const duplicateWindowMs = milliseconds("nats.duplicateWindow", options.duplicateWindow ?? "2m", {
    min: 100,
    max: 7 * dayMs,
  });
  if (maxAgeMs !== 0 && maxAgeMs < duplicateWindowMs) {
    throw new SagaboxError("OPTIONS_INVALID", "nats.maxAge must not be shorter than nats.duplicateWindow.");
  }
  return Object.freeze({
    servers: inPart(() => checkServers(options.servers ?? "nats://127.0.0.1:4222", tls, allowInsecure), []),
    credentials: inPart(() => checkCredentials(options.credentials), undefined),
    tls,
    prefix: text("nats.prefix", options.prefix ?? "dp", { max: 32, pattern: /^[A-Za-z0-9_-]+$/ }),
    format: oneOf("nats.format", options.format ?? "sagabox", messageFormats),
    partitions: wholeNumber("nats.partitions", options.partitions ?? 8, { min: 1, max: 256 }),
    replicas: wholeNumber("nats.replicas", options.replicas ?? 1, { min: 1, max: 5 }),
    duplicateWindowMs,
    maxAgeMs,
    compress: flag("nats.compress", options.compress ?? false),
    maxStreamBytes: wholeNumber("nats.maxStreamBytes", options.maxStreamBytes ?? -1, {
      min: -1,
      max: Number.MAX_SAFE_INTEGER,
    }),
    deadLetterMaxAgeMs: milliseconds("nats.deadLetterMaxAge", options.deadLetterMaxAge ?? "30d", years),
    leaseMs: milliseconds("nats.lease", options.lease ?? "10s", { min: 500, max: 3_600_000 }),
    ackWaitMs: milliseconds("nats.ackWait", options.ackWait ?? "30s", { min: 1_000, max: dayMs }),
    timeoutMs: milliseconds("nats.timeout", options.timeout ?? "5s", { min: 100, max: 600_000 }),
    inboxPrefix: text("nats.inboxPrefix", options.inboxPrefix ?? "_INBOX", {
      max: 64,
      pattern: /^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$/,
    }),
    warn: checkWarn(options.warn),
  });
}

function checkWarn(warn: unknown): (warning: string) => void {
  if (warn === undefined) return (warning) => process.emitWarning(warning, "SagaboxWarning");
  if (typeof warn !== "function") throw new SagaboxError("OPTIONS_INVALID", "nats.warn must be a function.");
  return warn as (warning: string) => void;
}
