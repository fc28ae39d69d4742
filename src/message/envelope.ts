import type { Message } from "./message.ts";
import { parseTraceparent } from "./trace-context.ts";

/** The version of the envelope, not of the payload. */
export const envelopeVersion = "1.0";

/**
 * The body that travels. The data is put in as the text it is, so it is neither parsed nor written anew between the
 * publisher's transaction and the handler; its schema version is a text on the wire.
 */
export function encodeEnvelope(message: Message): string {
  const metadata = JSON.stringify({
    message_id: message.id,
    correlation_id: message.correlationId,
    timestamp: message.writtenAt,
    source_service: message.source,
    target_service: message.target,
    message_type: message.kind,
    version: envelopeVersion,
    causation_id: message.causationId,
    saga_id: message.sagaId,
    topic: message.topic,
    key: message.key,
    aggregate_type: message.aggregateType,
    aggregate_id: message.aggregateId,
    priority: message.priority,
    expires_at: message.expiresAt,
    headers: message.headers,
  });
  const type = JSON.stringify(message.type);
  const payload = `{"type":${type},"data":${message.data},"schema_version":"${message.schemaVersion}"}`;
  return `{"metadata":${metadata},"payload":${payload},"tracing":${tracingOf(message.traceparent)}}`;
}

// A stored message keeps its own span but not the one above it, so the agreed field is there and empty.
function tracingOf(traceparent: string): string {
  const trace = parseTraceparent(traceparent);
  return JSON.stringify({
    trace_id: trace?.traceId ?? null,
    span_id: trace?.spanId ?? null,
    parent_id: null,
    traceparent,
  });
}
