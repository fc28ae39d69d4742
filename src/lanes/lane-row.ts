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
  readonly writtenOn: string;
  /** A replayed message may have outlived the time it was first given. */
  readonly expiresAt: string | null;
  /** Only when the reader was asked for messages. */
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

/** The moment stands in the first row of an answer; some answers repeat it. */
export interface RawRow {
  readonly horizon: string | null;
  readonly tail: string | null;
  readonly express: boolean | null;
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
  readonly written_on: string;
  readonly expires_at: string | null;
}

export interface RawMessage {
  readonly id: string;
  readonly kind: MessageKind;
  readonly type: string;
  readonly topic: string;
  readonly key: string | null;
  readonly priority: number;
  readonly data: string;
  readonly headers: string;
  /** The small fields of the message, joined. */
  readonly meta: string;
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
    writtenOn: raw.written_on,
    expiresAt: raw.expires_at,
    message: null,
  };
}

/** The message as it was written; when it expires, the row decides. */
export function messageOf(raw: RawMessage, expiresAt: string | null): Message {
  const [version, correlation, causation, traceparent, saga, ...others] = raw.meta.split(SEPARATOR);
  const [aggregateType, aggregateId, source, target, writtenAt] = others;
  return {
    id: raw.id,
    kind: raw.kind,
    type: raw.type,
    schemaVersion: Number(version),
    topic: raw.topic,
    key: raw.key,
    data: raw.data,
    headers: raw.headers === "{}" ? {} : (JSON.parse(raw.headers) as Record<string, string>),
    correlationId: correlation ?? "",
    causationId: causation || null,
    traceparent: traceparent ?? "",
    sagaId: saga || null,
    aggregateType: aggregateType || null,
    aggregateId: aggregateId || null,
    source: source ?? "",
    target: target || null,
    priority: raw.priority,
    writtenAt: writtenAt ?? "",
    expiresAt,
  };
}

/** The moment a read was made at, from the first row of its answer. */
export function momentOf(rows: readonly RawRow[]): ReadMoment | undefined {
  const { horizon = null, tail = null, express = null } = rows[0] ?? {};
  return horizon === null || tail === null ? undefined : { horizon, tail, express: express === true };
}

const SEPARATOR = "\u001f";
