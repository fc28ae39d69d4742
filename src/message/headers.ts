import { SagaboxError } from "../errors/index.ts";
import { isValidId } from "./message-id.ts";
import type { Headers, Message } from "./message.ts";

/** Headers that repeat fields of the envelope, so that brokers and other readers need not parse the body. */
export const ownHeaders = {
  messageId: "message_id",
  correlationId: "correlation_id",
  causationId: "causation_id",
  traceId: "trace_id",
  traceparent: "traceparent",
  kind: "message_type",
  type: "event_type",
  schemaVersion: "schema_version",
  source: "source_service",
  sagaId: "saga_id",
} as const;

const reservedNames: ReadonlySet<string> = new Set([...Object.values(ownHeaders), "content-type"]);
// sagabox, CloudEvents and NATS use these prefixes. RabbitMQ adds x-death and x-first-death to dead-lettered
// messages.
const reservedPrefixes = [
  "sagabox-",
  "sagabox.",
  "sagabox_",
  "ce-",
  "ce_",
  "cloudevents_",
  "nats-",
  "x-death",
  "x-first-death",
];

const namePattern = /^[a-z0-9][a-z0-9._-]{0,127}$/;
const MAX_HEADERS = 64;
const MAX_VALUE_BYTES = 8_192;

/** Shared empty object: most messages have no headers. */
export const noHeaders: Headers = Object.freeze({});

/** Parses stored headers. Throws ENVELOPE_INVALID if the text is not a JSON object. */
export function parseHeaders(text: string): Headers {
  const headers = parseHeaderObject(text);
  if (typeof headers === "object" && headers !== null && !Array.isArray(headers)) return headers as Headers;
  throw new SagaboxError("ENVELOPE_INVALID", "The stored headers of the message are not a JSON object.");
}

/** Parses stored headers for display: returns no headers if the text cannot be parsed. */
export function parseHeadersLeniently(text: string): Headers {
  try {
    return parseHeaders(text);
  } catch {
    return noHeaders;
  }
}

function parseHeaderObject(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Returns the caller's headers with lower-case names. Throws HEADER_INVALID for a reserved name, and for names
 * or values that some transport cannot carry.
 */
export function checkHeaders(input?: Readonly<Record<string, string>>): Headers {
  if (input === undefined) return noHeaders;
  if (typeof input !== "object" || input === null || Array.isArray(input)) {
    throw headersInvalid('`headers` must be an object of strings, such as { tenant: "a" }.');
  }
  const entries = Object.entries(input);
  if (entries.length > MAX_HEADERS)
    throw headersInvalid(`There are ${entries.length} headers; at most ${MAX_HEADERS} are allowed.`);
  const headers = new Map<string, string>();
  for (const [givenName, value] of entries) {
    const name = givenName.toLowerCase();
    checkName(name);
    if (headers.has(name)) throw headersInvalid(`Header "${name}" is given twice, in different letter case.`);
    checkValue(name, value);
    headers.set(name, value);
  }
  return Object.fromEntries(headers);
}

function checkName(name: string): void {
  if (!namePattern.test(name)) {
    throw headersInvalid(`Header ${JSON.stringify(name.slice(0, 40))} must match ${String(namePattern)}.`);
  }
  if (reservedNames.has(name) || reservedPrefixes.some((prefix) => name.startsWith(prefix))) {
    throw headersInvalid(`Header "${name}" is reserved and filled in automatically. Choose another name.`);
  }
}

function checkValue(name: string, value: unknown): void {
  if (typeof value !== "string") throw headersInvalid(`Header "${name}" must be a string.`);
  if (/[\r\n\0]|\p{Cs}/u.test(value)) {
    throw headersInvalid(`Header "${name}" must not contain line breaks, NUL or broken Unicode.`);
  }
  if (Buffer.byteLength(value) > MAX_VALUE_BYTES) {
    throw headersInvalid(`Header "${name}" is longer than ${MAX_VALUE_BYTES} bytes.`);
  }
}

function headersInvalid(message: string): SagaboxError {
  return new SagaboxError("HEADER_INVALID", message);
}

/**
 * Returns the headers that a transport sends with the body: the caller's and our own. A message without a
 * cause names itself as its cause here; in the body its causation id is null.
 */
export function wireHeaders(message: Message): Record<string, string> {
  const headers: Record<string, string> = {
    ...message.headers,
    [ownHeaders.messageId]: message.id,
    [ownHeaders.correlationId]: message.correlationId,
    [ownHeaders.causationId]: message.causationId ?? message.id,
    [ownHeaders.traceId]: message.traceparent.slice(3, 35),
    [ownHeaders.traceparent]: message.traceparent,
    ...commonHeaders(message),
  };
  if (message.sagaId !== null) headers[ownHeaders.sagaId] = message.sagaId;
  return headers;
}

/** Returns the headers that all messages of one type from one service share. */
export function commonHeaders(message: Message): Record<string, string> {
  return {
    [ownHeaders.kind]: message.kind,
    [ownHeaders.type]: message.type,
    [ownHeaders.schemaVersion]: String(message.schemaVersion),
    [ownHeaders.source]: message.source,
  };
}

/** Returns the headers that differ between messages of a type, as a flat array: name, value, name, value. */
export function particularHeaders(message: Message): string[] {
  const { messageId, correlationId, traceId, traceparent, causationId, sagaId } = ownHeaders;
  const list: string[] = message.headers === noHeaders ? [] : Object.entries(message.headers).flat();
  list.push(messageId, message.id, correlationId, message.correlationId);
  list.push(causationId, message.causationId ?? message.id);
  list.push(traceId, message.traceparent.slice(3, 35), traceparent, message.traceparent);
  if (message.sagaId !== null) list.push(sagaId, message.sagaId);
  return list;
}

/** Header of a compensating command: the earlier commands it undoes, if they were executed. */
export const undoesHeader = "sagabox-undoes";
/** Header of a command that is sent again under a new id: the earlier commands it replaces. */
export const supersedesHeader = "sagabox-supersedes";

/** Earlier commands of one type. */
export interface References {
  /** Name of their contract. */
  readonly type: string;
  readonly ids: readonly string[];
}

const MAX_HEADER_BYTES = 8_192;
const REFERENCES_PATTERN = /^([^\s,]+) ([^\s,]+(?:,[^\s,]+)*)$/;

/**
 * Formats the value of `sagabox-undoes` or `sagabox-supersedes`: `<type> <id>[,<id>…]`. Separators inside ids
 * are escaped. Throws HEADER_INVALID for an invalid type or id, or if the value is too long.
 */
export function formatReferences(type: string, ids: readonly string[]): string {
  const distinct = [...new Set(ids)];
  if (type === "" || /[\s,]/.test(type)) throw referencesInvalid(`"${type}" is not a contract name`);
  if (distinct.length === 0) throw referencesInvalid("it lists no message id");
  if (!distinct.every(isValidId))
    throw referencesInvalid("an id must be a string of 1 to 255 printable characters");
  const value = `${type} ${distinct.map(escapeId).join(",")}`;
  if (Buffer.byteLength(value) > MAX_HEADER_BYTES)
    throw referencesInvalid(`it is longer than ${MAX_HEADER_BYTES} bytes`);
  return value;
}

/**
 * Parses the value of `sagabox-undoes` or `sagabox-supersedes`. Throws HEADER_INVALID if it is malformed:
 * a wrong guess could skip or repeat an effect.
 */
export function parseReferences(value: string): References {
  const [, type, list] = REFERENCES_PATTERN.exec(value) ?? [];
  if (type === undefined || list === undefined) throw referencesInvalid("it must read `<type> <id>[,<id>…]`");
  const ids = [...new Set(list.split(",").map(unescapeId))];
  if (!ids.every(isValidId))
    throw referencesInvalid("an id must be a string of 1 to 255 printable characters");
  return { type, ids };
}

function escapeId(id: string): string {
  return id.replace(/[%,\s]/gu, (character) => encodeURIComponent(character));
}

function unescapeId(id: string): string {
  try {
    return decodeURIComponent(id);
  } catch (cause) {
    throw referencesInvalid("the escapes of an id are invalid", cause);
  }
}

function referencesInvalid(why: string, cause?: unknown): SagaboxError {
  return new SagaboxError("HEADER_INVALID", `A header that refers to earlier commands is invalid: ${why}.`, {
    cause,
  });
}
