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
  const common = commonOf(message);
  return (
    `{"metadata":{"message_id":${quoted(message.id)},"correlation_id":${quoted(message.correlationId)}` +
    `,"timestamp":${quoted(message.writtenAt)}${addressOf(message, common)}${orNull(message.key)}` +
    `${restOf(message, common)}${message.data},"schema_version":"${message.schemaVersion}"}` +
    `,"tracing":${tracingOf(message.traceparent)}}`
  );
}

/** What the messages of a type nearly always have in common, so it is written once. */
interface Common {
  readonly source: string;
  readonly target: string | null;
  readonly kind: string;
  readonly topic: string;
  readonly priority: number;
  /** From the source to the key, of a message that nothing caused and that belongs to no saga. */
  readonly address: string;
  /** From the key to the data, of one without aggregate, end and headers. */
  readonly rest: string;
}

const commons = new Map<string, Common>();
/** More are not remembered: types may be made by the thousand. */
const MOST_COMMONS = 1_000;

function commonOf(message: Message): Common {
  const known = commons.get(message.type);
  if (
    known?.source === message.source &&
    known.target === message.target &&
    known.kind === message.kind &&
    known.topic === message.topic &&
    known.priority === message.priority
  )
    return known;
  if (commons.size >= MOST_COMMONS) commons.clear();
  const { type, source, target, kind, topic, priority } = message;
  const address = flat(writtenAddress({ source, target, kind, topic, causationId: null, sagaId: null }));
  const plain = { aggregateType: null, aggregateId: null, expiresAt: null, headers: noHeaders };
  const common = {
    source,
    target,
    kind,
    topic,
    priority,
    address,
    rest: flat(writtenRest({ type, priority, ...plain })),
  };
  commons.set(flat(type), common);
  return common;
}

function addressOf(message: Message, common: Common): string {
  return message.causationId === null && message.sagaId === null ? common.address : writtenAddress(message);
}

function restOf(message: Message, common: Common): string {
  const { aggregateType, aggregateId, expiresAt, headers } = message;
  const isPlain =
    aggregateType === null && aggregateId === null && expiresAt === null && headers === noHeaders;
  return isPlain ? common.rest : writtenRest(message);
}

type Address = Pick<Message, "source" | "target" | "kind" | "causationId" | "sagaId" | "topic">;

function writtenAddress({ source, target, kind, causationId, sagaId, topic }: Address): string {
  return (
    `,"source_service":${quoted(source)},"target_service":${orNull(target)},"message_type":${quoted(kind)}` +
    `,"version":"${envelopeVersion}","causation_id":${orNull(causationId)}` +
    `,"saga_id":${orNull(sagaId)},"topic":${quoted(topic)},"key":`
  );
}

type Rest = Pick<Message, "aggregateType" | "aggregateId" | "priority" | "expiresAt" | "headers" | "type">;

function writtenRest({ aggregateType, aggregateId, priority, expiresAt, headers, type }: Rest): string {
  return (
    `,"aggregate_type":${orNull(aggregateType)},"aggregate_id":${orNull(aggregateId)}` +
    `,"priority":${priority},"expires_at":${orNull(expiresAt)}` +
    `,"headers":${headers === noHeaders ? "{}" : JSON.stringify(headers)}},"payload":{"type":${quoted(type)},"data":`
  );
}

// A text in one piece: what is remembered must neither keep larger texts alive nor be put together again each time.
function flat(text: string): string {
  return Buffer.from(text).toString();
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
