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
  /** Where to connect, such as "nats://127.0.0.1:4222"; several for a cluster. Else SAGABOX_NATS_URL, else that one. */
  readonly servers?: string | readonly string[];
  /** Who we are; a function is asked again for each connection. */
  readonly credentials?: CredentialSource;
  /** Encrypt, and verify the server against these authorities; `true` takes those of Node. */
  readonly tls?: NatsTls | true;
  /** Allow clear text to hosts other than this one. Default false. */
  readonly allowInsecure?: boolean;
  /** First word of all subjects and streams. Default "dp". */
  readonly prefix?: string;
  /**
   * How messages are written: our own envelope, or CloudEvents 1.0 in structured or binary mode. All three are always
   * read. Else SAGABOX_MESSAGE_FORMAT, else "sagabox".
   */
  readonly format?: MessageFormat;
  /** How many subjects the keys of a topic are spread over; fixed once the stream exists. 1 to 256, default 8. */
  readonly partitions?: number;
  /** Copies of each stream in a cluster. Default 1. */
  readonly replicas?: number;
  /** How long the server recognises a message that is sent twice. Default "2m". */
  readonly duplicateWindow?: Duration | number;
  /** How long messages stay, handled or not; 0 keeps them for ever. Default "7d". */
  readonly maxAge?: Duration | number;
  /** Store messages compressed, where the server can (2.10 and later). Default false. */
  readonly compress?: boolean;
  /** When the stream is that large, publishing waits; -1 for no limit. Default -1. */
  readonly maxStreamBytes?: number;
  /** How long the server keeps dead letters; 0 for ever. Default "30d". */
  readonly deadLetterMaxAge?: Duration | number;
  /** A member that is silent for so long loses its partitions to the others. Default "10s". */
  readonly lease?: Duration | number;
  /** How long the server waits for a sign of life of a message before it delivers it again. Default "30s". */
  readonly ackWait?: Duration | number;
  /** How long one question to the server may take. Default "5s". */
  readonly timeout?: Duration | number;
  /** First words of the subjects that answers come to; lets permissions name them. Default "_INBOX". */
  readonly inboxPrefix?: string;
  /** Called with a sentence for people when something unsafe was found. Default: `process.emitWarning`. */
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
