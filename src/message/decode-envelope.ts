import { createHash } from "node:crypto";
import { isSagaboxError, SagaboxError } from "../errors/index.ts";
import { EnvelopeFields } from "./envelope-fields.ts";
import { decodeJson } from "./json.ts";
import type { Message } from "./message.ts";
import { findMember } from "./raw-member.ts";
import { formatTraceparent, parseTraceparent } from "./trace-context.ts";

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
