import { AuditWriter } from "../audit/index.ts";
import { parseHeadersLeniently, type Message } from "../message/index.ts";
import { quoteSchema, type Database } from "../storage/index.ts";
import type { DeadLetterReason } from "./describe-failure.ts";
import { deadLetterStatements, type DeadLetterStatements } from "./statements.ts";

/** Access to the dead letters of one schema. */
export interface DeadLetterStore {
  readonly database: Database;
  readonly sql: DeadLetterStatements;
  readonly audit: AuditWriter;
}

export function deadLetterStore(database: Database, schema: string): DeadLetterStore {
  return { database, sql: deadLetterStatements(quoteSchema(schema)), audit: new AuditWriter(schema) };
}

export interface DeadLetter {
  readonly id: string;
  readonly origin: "outbox" | "consumer";
  /** Consumer that failed; null for a message that the relay could not send. */
  readonly consumer: string | null;
  readonly message: Message;
  readonly reason: DeadLetterReason;
  readonly attempts: number;
  readonly maxAttempts: number;
  readonly errorType: string;
  readonly errorMessage: string;
  readonly stackTrace: string | null;
  readonly failedAt: string;
  readonly closedAt: string | null;
  readonly closedAs: "replayed" | "discarded" | null;
  /** Id of the failure's cause, equal for all dead letters of that cause; null until they are grouped. */
  readonly fingerprint: string | null;
  /** Row key of the outbox tombstone that blocks later messages of this key; null if none does. */
  readonly held: { readonly lane: number; readonly seq: string } | null;
}

/** A row as returned by the statements `show` and `close`. */
export interface DeadLetterRow {
  readonly id: string;
  readonly origin: "outbox" | "consumer";
  readonly consumer: string | null;
  readonly message_id: string;
  readonly kind: Message["kind"];
  readonly type: string;
  readonly schema_version: number;
  readonly topic: string;
  readonly key: string | null;
  readonly aggregate_type: string | null;
  readonly aggregate_id: string | null;
  readonly saga_id: string | null;
  readonly correlation_id: string;
  readonly causation_id: string | null;
  readonly traceparent: string;
  readonly source: string;
  readonly target: string | null;
  readonly priority: number;
  readonly max_attempts: number;
  readonly headers: string;
  readonly data: string;
  readonly written_at: string;
  readonly expires_at: string | null;
  readonly reason: DeadLetterReason;
  readonly attempts: number;
  readonly error_type: string;
  readonly error_message: string;
  readonly stack_trace: string | null;
  readonly failed_at: string;
  readonly closed_at: string | null;
  readonly closed_as: "replayed" | "discarded" | null;
  readonly held_lane: number | null;
  readonly held_seq: string | null;
  readonly fingerprint: string | null;
}

export function toDeadLetter(row: DeadLetterRow): DeadLetter {
  const held =
    row.held_lane === null || row.held_seq === null ? null : { lane: row.held_lane, seq: row.held_seq };
  return {
    id: row.id,
    origin: row.origin,
    consumer: row.consumer,
    message: toMessage(row),
    reason: row.reason,
    attempts: row.attempts,
    maxAttempts: row.max_attempts,
    errorType: row.error_type,
    errorMessage: row.error_message,
    stackTrace: row.stack_trace,
    failedAt: row.failed_at,
    closedAt: row.closed_at,
    closedAs: row.closed_as,
    fingerprint: row.fingerprint,
    held,
  };
}

function toMessage(row: DeadLetterRow): Message {
  return {
    id: row.message_id,
    kind: row.kind,
    type: row.type,
    schemaVersion: row.schema_version,
    topic: row.topic,
    key: row.key,
    data: row.data,
    headers: parseHeadersLeniently(row.headers),
    correlationId: row.correlation_id,
    causationId: row.causation_id,
    traceparent: row.traceparent,
    sagaId: row.saga_id,
    aggregateType: row.aggregate_type,
    aggregateId: row.aggregate_id,
    source: row.source,
    target: row.target,
    priority: row.priority,
    writtenAt: row.written_at,
    expiresAt: row.expires_at,
  };
}
