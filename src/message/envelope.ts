import { noHeaders } from "./headers.ts";
import type { Message } from "./message.ts";
import { parseTraceparent } from "./trace-context.ts";

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
