import { noHeaders } from "./headers.ts";
import type { Message } from "./message.ts";
import { parseTraceparent } from "./trace-context.ts";

/** The version of the envelope, not of the payload. */
export const envelopeVersion = "1.0";

/**
 * The body that travels. The data is put in as the text it is, so it is neither parsed nor written anew between the
 * publisher's transaction and the handler; its schema version is a text on the wire.
 */
export function encodeEnvelope(message: Message): string {
  const metadata =
    `"message_id":${quoted(message.id)},"correlation_id":${quoted(message.correlationId)}` +
    `,"timestamp":${quoted(message.writtenAt)},"source_service":${quoted(message.source)}` +
    `,"target_service":${orNull(message.target)},"message_type":${quoted(message.kind)}` +
    `,"version":"${envelopeVersion}","causation_id":${orNull(message.causationId)}` +
    `,"saga_id":${orNull(message.sagaId)},"topic":${quoted(message.topic)},"key":${orNull(message.key)}` +
    `,"aggregate_type":${orNull(message.aggregateType)},"aggregate_id":${orNull(message.aggregateId)}` +
    `,"priority":${message.priority},"expires_at":${orNull(message.expiresAt)}` +
    `,"headers":${message.headers === noHeaders ? "{}" : JSON.stringify(message.headers)}`;
  const payload = `"type":${quoted(message.type)},"data":${message.data},"schema_version":"${message.schemaVersion}"`;
  return `{"metadata":{${metadata}},"payload":{${payload}},"tracing":${tracingOf(message.traceparent)}}`;
}

// Printable ASCII without quote and backslash is its own JSON, and finding that out costs less than writing JSON.
const needsEscape = /[^ !#-[\]-~]/;

function quoted(text: string): string {
  return needsEscape.test(text) ? JSON.stringify(text) : `"${text}"`;
}

function orNull(text: string | null): string {
  return text === null ? "null" : quoted(text);
}

/** As we write it ourselves: the first version, and neither id all zeros. */
const ownTraceparent = /^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/;

// A stored message keeps its own span but not the one above it, so the agreed field is there and empty.
function tracingOf(text: string): string {
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
