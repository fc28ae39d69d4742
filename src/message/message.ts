import { createHash } from "node:crypto";
import { type Duration, isSagaboxError, SagaboxError } from "../errors/index.ts";
import type { Priority } from "./contract.ts";
import { noHeaders } from "./headers.ts";
import { decodeJson } from "./json.ts";
import { formatTraceparent, parseTraceparent } from "./message-context.ts";
import { isPrintable, isValidId } from "./message-id.ts";

export type MessageKind = "event" | "command" | "stream";

/** Headers set by the caller; names are lower case. */
export type Headers = Readonly<Record<string, string>>;

/**
 * A message as it is stored and sent. The data stays JSON text from the publisher's transaction to the
 * handler.
 */
export interface Message {
  readonly id: string;
  readonly kind: MessageKind;
  /** Name of the contract. */
  readonly type: string;
  readonly schemaVersion: number;
  readonly topic: string;
  /** Messages with one key keep their order; messages without a key (null) have none. */
  readonly key: string | null;
  readonly data: string;
  readonly headers: Headers;
  readonly correlationId: string;
  readonly causationId: string | null;
  readonly traceparent: string;
  readonly sagaId: string | null;
  readonly aggregateType: string | null;
  readonly aggregateId: string | null;
  /** The service that published it. */
  readonly source: string;
  /** The service a command is for. */
  readonly target: string | null;
  /** 0 to 9, 9 is most urgent. */
  readonly priority: number;
  /** ISO 8601 in UTC, with up to microseconds. */
  readonly writtenAt: string;
  readonly expiresAt: string | null;
}

/** Version of the envelope format, independent of the payload's schema version. */
export const envelopeVersion = "1.0";

/**
 * Serializes a message to the body that is sent. The data is inserted as text, so it is never parsed between
 * the publisher's transaction and the handler. The schema version is written as a string.
 */
export function encodeEnvelope(message: Message): string {
  const common = findCommonParts(message);
  return (
    `{"metadata":{"message_id":${quoteJson(message.id)},"correlation_id":${quoteJson(message.correlationId)}` +
    `,"timestamp":${quoteJson(message.writtenAt)}${encodeAddress(message, common)}${quoteOrNull(message.key)}` +
    `${encodeRest(message, common)}${message.data},"schema_version":"${message.schemaVersion}"}` +
    `,"tracing":${encodeTracing(message.traceparent)}}`
  );
}

/** Parts of the envelope that are nearly always equal for all messages of a type, serialized once. */
interface CommonParts {
  readonly source: string;
  readonly target: string | null;
  readonly kind: string;
  readonly topic: string;
  readonly priority: number;
  /** From the source to the key, for a message without causation id and saga. */
  readonly address: string;
  /** From the key to the data, for a message without aggregate, expiry and headers. */
  readonly rest: string;
}

const commonPartsByType = new Map<string, CommonParts>();
/** The cache is cleared above this size, because types may be generated. */
const MAX_REMEMBERED_TYPES = 1_000;

function findCommonParts(message: Message): CommonParts {
  const known = commonPartsByType.get(message.type);
  if (
    known?.source === message.source &&
    known.target === message.target &&
    known.kind === message.kind &&
    known.topic === message.topic &&
    known.priority === message.priority
  )
    return known;
  if (commonPartsByType.size >= MAX_REMEMBERED_TYPES) commonPartsByType.clear();
  const { type, source, target, kind, topic, priority } = message;
  const address = flattenString(
    formatAddress({ source, target, kind, topic, causationId: null, sagaId: null }),
  );
  const plain = { aggregateType: null, aggregateId: null, expiresAt: null, headers: noHeaders };
  const common = {
    source,
    target,
    kind,
    topic,
    priority,
    address,
    rest: flattenString(formatRest({ type, priority, ...plain })),
  };
  commonPartsByType.set(flattenString(type), common);
  return common;
}

function encodeAddress(message: Message, common: CommonParts): string {
  return message.causationId === null && message.sagaId === null ? common.address : formatAddress(message);
}

function encodeRest(message: Message, common: CommonParts): string {
  const { aggregateType, aggregateId, expiresAt, headers } = message;
  const isPlain =
    aggregateType === null && aggregateId === null && expiresAt === null && headers === noHeaders;
  return isPlain ? common.rest : formatRest(message);
}

type Address = Pick<Message, "source" | "target" | "kind" | "causationId" | "sagaId" | "topic">;

function formatAddress({ source, target, kind, causationId, sagaId, topic }: Address): string {
  return (
    `,"source_service":${quoteJson(source)},"target_service":${quoteOrNull(target)},"message_type":${quoteJson(kind)}` +
    `,"version":"${envelopeVersion}","causation_id":${quoteOrNull(causationId)}` +
    `,"saga_id":${quoteOrNull(sagaId)},"topic":${quoteJson(topic)},"key":`
  );
}

type Rest = Pick<Message, "aggregateType" | "aggregateId" | "priority" | "expiresAt" | "headers" | "type">;

function formatRest({ aggregateType, aggregateId, priority, expiresAt, headers, type }: Rest): string {
  return (
    `,"aggregate_type":${quoteOrNull(aggregateType)},"aggregate_id":${quoteOrNull(aggregateId)}` +
    `,"priority":${priority},"expires_at":${quoteOrNull(expiresAt)}` +
    `,"headers":${headers === noHeaders ? "{}" : JSON.stringify(headers)}},"payload":{"type":${quoteJson(type)},"data":`
  );
}

// Copies a string, so that a cached one is neither a slice that keeps a larger string alive nor a rope that
// is flattened on each use.
function flattenString(text: string): string {
  return Buffer.from(text).toString();
}

// Printable ASCII without quotes and backslashes needs no escapes, and this test is cheaper than
// JSON.stringify.
const needsEscape = /[^ !#-[\]-~]/;

function quoteJson(text: string): string {
  return needsEscape.test(text) ? JSON.stringify(text) : `"${text}"`;
}

function quoteOrNull(text: string | null): string {
  return text === null ? "null" : quoteJson(text);
}

/** A valid traceparent of version 00. */
const ownTraceparent = /^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;

// A stored message keeps its own span but not the parent span, so `parent_id` is always null.
function encodeTracing(text: string): string {
  if (ownTraceparent.test(text))
    return `{"trace_id":"${text.slice(3, 35)}","span_id":"${text.slice(36, 52)}","parent_id":null,"traceparent":"${text}"}`;
  const trace = parseTraceparent(text);
  return JSON.stringify({
    trace_id: trace?.traceId ?? null,
    span_id: trace?.spanId ?? null,
    parent_id: null,
    traceparent: text,
  });
}

const utcTime = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,6})\d*)?Z$/;
const anyTime = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)$/;
// JavaScript reads February 30 as a day in March; PostgreSQL refuses that day and the year 0.
const unusual = /^0000|^\d{4}-\d\d-(?:29|3)|T24/;

/** Creates the error that names the field and the rule it breaks. */
type Invalid = (path: string, rule: string) => SagaboxError;

/**
 * Reads the fields of a parsed envelope by path. Each method throws an error that names the invalid field.
 */
export class EnvelopeFields {
  readonly #root: unknown;
  readonly #invalid: Invalid;

  constructor(root: unknown, invalid: Invalid = envelopeInvalid) {
    this.#root = root;
    this.#invalid = invalid;
  }

  expect(path: string, value: string): void {
    if (this.#readPath(path) !== value) throw this.#invalid(path, `must be "${value}"`);
  }

  readText(path: string): string {
    return this.readOptionalText(path) ?? this.#throwMissing(path);
  }

  readOptionalText(path: string): string | null {
    const value = this.#readPath(path) ?? null;
    if (value === null) return null;
    if (typeof value !== "string" || value === "") throw this.#invalid(path, "must be a non-empty string");
    if (!isPrintable(value))
      throw this.#invalid(path, "must not contain control characters or broken Unicode");
    return value;
  }

  readId(path: string): string {
    return this.readOptionalId(path) ?? this.#throwMissing(path);
  }

  readOptionalId(path: string): string | null {
    const value = this.#readPath(path) ?? null;
    if (value === null || isValidId(value)) return value;
    throw this.#invalid(path, "must be a string of 1 to 255 characters without control characters");
  }

  readEnum<const T extends string>(path: string, allowed: readonly T[]): T {
    const value = this.#readPath(path);
    return (
      allowed.find((candidate) => candidate === value) ??
      this.#throwMissing(path, `must be one of ${allowed.join(", ")}`)
    );
  }

  readVersion(path: string): number {
    const match = /^([1-9]\d{0,8})(\.0)?$/.exec(String(this.#readPath(path)));
    if (match === null) throw this.#invalid(path, "must be a whole number from 1");
    return Number(match[1]);
  }

  readPriority(path: string): number {
    const value = this.#readPath(path) ?? 5;
    if (Number.isInteger(value) && (value as number) >= 0 && (value as number) <= 9) return value as number;
    throw this.#invalid(path, "must be a whole number from 0 to 9");
  }

  readTime(path: string): string {
    return this.readOptionalTime(path) ?? this.#throwMissing(path);
  }

  /** Returns the time in UTC with up to microseconds, also if the producer wrote another zone. */
  readOptionalTime(path: string): string | null {
    const value = this.#readPath(path) ?? null;
    if (value === null) return null;
    if (typeof value !== "string" || !anyTime.test(value) || Number.isNaN(Date.parse(value))) {
      throw this.#invalid(path, "must be an ISO 8601 time with a time zone");
    }
    const match = utcTime.exec(value);
    if (match !== null && !unusual.test(value)) {
      return match[2] === undefined ? value : `${match[1]}.${match[2]}Z`;
    }
    const utc = new Date(value).toISOString();
    if (!/^\d{4}/.test(utc) || utc.startsWith("0000") || !utc.startsWith(match?.[1] ?? "")) {
      throw this.#invalid(path, "must be an existing date and time");
    }
    if (match === null) return utc;
    return match[2] === undefined ? value : `${match[1]}.${match[2]}Z`;
  }

  readHeaders(path: string): Headers {
    const value = this.#readPath(path) ?? {};
    const isMap = typeof value === "object" && !Array.isArray(value);
    if (!isMap || !Object.values(value).every((item) => typeof item === "string")) {
      throw this.#invalid(path, "must be an object of strings");
    }
    return value as Headers;
  }

  #throwMissing(path: string, rule = "is missing"): never {
    throw this.#invalid(path, rule);
  }

  #readPath(path: string): unknown {
    let value = this.#root;
    for (const key of splitPath(path)) {
      if (typeof value !== "object" || value === null || !Object.hasOwn(value, key)) return undefined;
      value = (value as Record<string, unknown>)[key];
    }
    return value;
  }
}

// Only the fixed paths of this package get here, so the cache stays small.
const splitPaths = new Map<string, readonly string[]>();

function splitPath(path: string): readonly string[] {
  let keys = splitPaths.get(path);
  if (keys === undefined) splitPaths.set(path, (keys = path.split(".")));
  return keys;
}

function envelopeInvalid(path: string, rule: string): SagaboxError {
  return new SagaboxError("ENVELOPE_INVALID", `The envelope cannot be read: ${path} ${rule}.`);
}

interface DecodeOptions {
  /** The topic it was received on. Used if the envelope does not name one. */
  readonly topic: string;
  /** Largest envelope without its data, in bytes. Default 2,097,152. */
  readonly maxBytes?: number;
}

/** Parses an envelope. The data stays text; `decodeJson` checks it later. Throws ENVELOPE_INVALID. */
export function decodeEnvelope(text: string, options: DecodeOptions): Message {
  const { data, frame } = splitEnvelope(text);
  const fields = new EnvelopeFields(parseFrame(frame, options.maxBytes ?? 2_097_152));
  fields.expect("metadata.version", "1.0");
  const id = fields.readId("metadata.message_id");
  return {
    id,
    kind: fields.readEnum("metadata.message_type", ["event", "command", "stream"]),
    type: fields.readText("payload.type"),
    schemaVersion: fields.readVersion("payload.schema_version"),
    topic: fields.readOptionalText("metadata.topic") ?? options.topic,
    key: fields.readOptionalId("metadata.key"),
    data,
    headers: fields.readHeaders("metadata.headers"),
    correlationId: fields.readOptionalId("metadata.correlation_id") ?? id,
    causationId: fields.readOptionalId("metadata.causation_id"),
    traceparent: readTraceparent(fields, id),
    sagaId: fields.readOptionalId("metadata.saga_id"),
    aggregateType: fields.readOptionalText("metadata.aggregate_type"),
    aggregateId: fields.readOptionalText("metadata.aggregate_id"),
    source: fields.readText("metadata.source_service"),
    target: fields.readOptionalText("metadata.target_service"),
    priority: fields.readPriority("metadata.priority"),
    writtenAt: fields.readTime("metadata.timestamp"),
    expiresAt: fields.readOptionalTime("metadata.expires_at"),
  };
}

// Replaces the data by null, so that only the envelope around it is parsed here.
function splitEnvelope(text: string): { data: string; frame: string } {
  const payload = findMember(text, 0, "payload");
  const data = payload === undefined ? undefined : findMember(text, payload.start, "data");
  if (data === undefined) throw new SagaboxError("ENVELOPE_INVALID", "The envelope has no payload.data.");
  return {
    data: text.slice(data.start, data.end),
    frame: `${text.slice(0, data.start)}null${text.slice(data.end)}`,
  };
}

function parseFrame(frame: string, maxBytes: number): unknown {
  try {
    return decodeJson(frame, { maxBytes });
  } catch (cause) {
    if (!isSagaboxError(cause)) throw cause;
    throw new SagaboxError("ENVELOPE_INVALID", `The envelope cannot be read. ${cause.message}`, { cause });
  }
}

function readTraceparent(fields: EnvelopeFields, id: string): string {
  const written = fields.readOptionalText("tracing.traceparent");
  if (parseTraceparent(written) !== undefined && written !== null) return written;
  const traceId = fields.readOptionalText("tracing.trace_id");
  const spanId = fields.readOptionalText("tracing.span_id");
  return traceparentOrDerived(
    formatTraceparent({ traceId: traceId ?? "", spanId: spanId ?? "", flags: "01" }),
    id,
  );
}

/**
 * Returns the traceparent if it is valid. Otherwise derives one from the message id, so that a message of a
 * producer without tracing has the same trace on each delivery.
 */
export function traceparentOrDerived(written: string | null, id: string): string {
  if (written !== null && parseTraceparent(written) !== undefined) return written;
  const digest = createHash("sha256").update(id).digest("hex");
  return formatTraceparent({ traceId: digest.slice(0, 32), spanId: digest.slice(32, 48), flags: "01" });
}

/** Start and end index of a value in a JSON text. */
interface Span {
  readonly start: number;
  readonly end: number;
}

/**
 * Finds a member of the object that starts at `at`, without parsing its value. The text need not be valid
 * JSON: the caller parses the text around the span, and the reader of the value parses the span.
 */
export function findMember(text: string, at: number, key: string): Span | undefined {
  let index = skipSpace(text, at);
  if (text[index] !== "{") return undefined;
  do {
    const name = skipSpace(text, index + 1);
    const nameEnd = skipString(text, name);
    const colon = skipSpace(text, nameEnd);
    if (nameEnd === -1 || text[colon] !== ":") return undefined;
    const start = skipSpace(text, colon + 1);
    const end = skipValue(text, start);
    if (end === -1) return undefined;
    if (text.slice(name + 1, nameEnd - 1) === key) return { start, end };
    index = skipSpace(text, end);
  } while (text[index] === ",");
  return undefined;
}

function skipSpace(text: string, index: number): number {
  let next = index;
  while (" \n\r\t".includes(text[next] ?? "-")) next++;
  return next;
}

function skipString(text: string, opening: number): number {
  if (text[opening] !== '"') return -1;
  for (let end = text.indexOf('"', opening + 1); end !== -1; end = text.indexOf('"', end + 1)) {
    let backslashes = 0;
    while (text.charCodeAt(end - 1 - backslashes) === 92) backslashes++;
    if (backslashes % 2 === 0) return end + 1;
  }
  return -1;
}

const bracket = /["{}[\]]/g;

function skipValue(text: string, start: number): number {
  const first = text[start];
  if (first === '"') return skipString(text, start);
  if (first !== "{" && first !== "[") return skipScalar(text, start);
  let depth = 0;
  bracket.lastIndex = start;
  for (let match = bracket.exec(text); match !== null; match = bracket.exec(text)) {
    if (match[0] === '"') {
      bracket.lastIndex = skipString(text, match.index);
      if (bracket.lastIndex <= 0) return -1;
    } else {
      depth += match[0] === "{" || match[0] === "[" ? 1 : -1;
      if (depth === 0) return match.index + 1;
    }
  }
  return -1;
}

function skipScalar(text: string, start: number): number {
  let end = start;
  while (end < text.length && !",}] \n\r\t".includes(text[end] ?? "")) end++;
  return end === start ? -1 : end;
}

/** Options of `publish`. What is left out is inherited from the message being handled, or generated. */
export interface PublishOptions {
  /** Your own id: a second message with this id is not written. Default: a generated, time-ordered id. */
  readonly id?: string;
  /** Replaces the result of the contract's key function. */
  readonly key?: string;
  readonly topic?: string;
  /** Sends the message no earlier than this long from now. */
  readonly delay?: Duration | number;
  /** Sends the message no earlier than at this time. */
  readonly at?: Date;
  /** 9 is most urgent. Orders messages of different keys; a key keeps its order. */
  readonly priority?: Priority;
  /**
   * Time to live: the message is dead-lettered as `expired` if it is not delivered within this time of
   * becoming due.
   */
  readonly ttl?: Duration | number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly correlationId?: string;
  readonly causationId?: string;
  readonly traceparent?: string;
  readonly sagaId?: string;
  readonly aggregateId?: string;
  readonly target?: string;
  /**
   * Set it if you call `bus.flush()` right after your COMMIT: this process then sends the message
   * immediately.
   */
  readonly flush?: boolean;
}

/** What `publish` resolves with. */
export interface Published {
  readonly id: string;
  /** False if the id was used before, or an overflow policy dropped the message. */
  readonly written: boolean;
}
