import type { Message, MessageKind } from "../message/index.ts";

/** A narrow row as its reader sees it. */
export interface LaneRow {
  readonly lane: number;
  readonly seq: number;
  /** Topic and key in one number; null where there is no key and so no order. */
  readonly stream: string | null;
  readonly topic: string;
  readonly type: string;
  readonly messageId: string;
  readonly attempts: number;
  readonly maxAttempts: number;
  /** Milliseconds until the row may be worked on; zero or less means now. */
  readonly waitMs: number;
  /** The process that wrote it is sending it right now. */
  readonly leased: boolean;
  readonly expired: boolean;
  /** Only when the reader was asked for payloads. */
  readonly message: Message | null;
}

/** What every read tells about the moment it was made. */
export interface ReadMoment {
  /** Every transaction below this number has ended. */
  readonly horizon: string;
  /** The last seq drawn by anybody, committed or not. */
  readonly tail: string;
  /** Rows of another priority than the default exist. */
  readonly express: boolean;
}

export interface RawRow extends ReadMoment {
  readonly lane: number | null;
  readonly seq: string;
  readonly stream: string | null;
  readonly topic: string;
  readonly type: string;
  readonly message_id: string;
  readonly priority: number;
  readonly attempts: number;
  readonly max_attempts: number;
  readonly wait_ms: number;
  readonly leased: boolean;
  readonly expired: boolean;
  /** An earlier row of its stream has another priority and goes first. */
  readonly blocked?: boolean;
  /** Its priority, raised by its age. */
  readonly rank?: number;
  readonly kind?: MessageKind | null;
  readonly schema_version: number;
  readonly key: string | null;
  readonly data: string;
  readonly headers: string;
  readonly correlation_id: string;
  readonly causation_id: string | null;
  readonly traceparent: string;
  readonly saga_id: string | null;
  readonly aggregate_type: string | null;
  readonly aggregate_id: string | null;
  readonly source: string;
  readonly target: string | null;
  readonly written_at: string;
  readonly expires_at: string | null;
}

export function laneRow(raw: RawRow): LaneRow {
  return {
    lane: raw.lane ?? -1,
    seq: Number(raw.seq),
    stream: raw.stream,
    topic: raw.topic,
    type: raw.type,
    messageId: raw.message_id,
    attempts: raw.attempts,
    maxAttempts: raw.max_attempts,
    waitMs: raw.wait_ms,
    leased: raw.leased,
    expired: raw.expired,
    message: raw.kind == null ? null : messageOf(raw, raw.kind),
  };
}

function messageOf(raw: RawRow, kind: MessageKind): Message {
  return {
    id: raw.message_id,
    kind,
    type: raw.type,
    schemaVersion: raw.schema_version,
    topic: raw.topic,
    key: raw.key,
    data: raw.data,
    headers: raw.headers === "{}" ? {} : (JSON.parse(raw.headers) as Record<string, string>),
    correlationId: raw.correlation_id,
    causationId: raw.causation_id,
    traceparent: raw.traceparent,
    sagaId: raw.saga_id,
    aggregateType: raw.aggregate_type,
    aggregateId: raw.aggregate_id,
    source: raw.source,
    target: raw.target,
    priority: raw.priority,
    writtenAt: raw.written_at,
    expiresAt: raw.expires_at,
  };
}
