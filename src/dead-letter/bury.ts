import type { Message } from "../message/index.ts";
import { type Param, type Queryable, replaceNul } from "../storage/index.ts";
import type { DeadLetterStore } from "./dead-letter.ts";
import { type DeadLetterReason, describeFailure } from "./describe-failure.ts";
import { computeFingerprint } from "./fingerprint.ts";
import type { DeadLetterStatements } from "./statements.ts";

interface DeliveryFailure {
  readonly message: Message;
  readonly reason: DeadLetterReason;
  readonly attempts: number;
  readonly maxAttempts: number;
  readonly error: unknown;
}

export type Burial =
  | (DeliveryFailure & { readonly origin: "consumer"; readonly consumer: string })
  | (DeliveryFailure & { readonly origin: "outbox" });

/** Inserts the message as a dead letter in the caller's transaction. Resolves with its id, or null when the message has an open dead letter. */
export async function buryMessage(
  tx: Queryable,
  sql: DeadLetterStatements,
  death: Burial,
): Promise<string | null> {
  const { rows } = await tx.run<{ id: string }>(sql.bury, burialParams(death));
  return rows[0]?.id ?? null;
}

/** Returns the parameters of `sql.bury`, for callers that run it in a pipeline with other statements. */
export function burialParams(death: Burial): readonly Param[] {
  const { message, error } = death;
  const { errorType, errorMessage, stackTrace } = describeFailure(error);
  const consumer = death.origin === "consumer" ? death.consumer : null;
  return [
    death.origin,
    consumer,
    replaceNul(message.id),
    replaceNul(message.kind),
    replaceNul(message.type),
    message.schemaVersion,
    replaceNul(message.topic),
    storableOrNull(message.key),
    storableOrNull(message.aggregateType),
    storableOrNull(message.aggregateId),
    storableOrNull(message.sagaId),
    replaceNul(message.correlationId),
    storableOrNull(message.causationId),
    replaceNul(message.traceparent),
    replaceNul(message.source),
    storableOrNull(message.target),
    message.priority,
    death.maxAttempts,
    replaceNul(JSON.stringify(message.headers)),
    replaceNul(message.data),
    validTimeOrNull(message.writtenAt),
    validTimeOrNull(message.expiresAt),
    death.reason,
    death.attempts,
    errorType,
    errorMessage,
    stackTrace,
    computeFingerprint({ consumer, type: message.type, reason: death.reason, errorType, errorMessage }),
  ];
}

// A foreign publisher may send NUL characters, which PostgreSQL cannot store. They are replaced, so that the message is kept.
function storableOrNull(text: string | null): string | null {
  return text === null ? null : replaceNul(text);
}

function validTimeOrNull(text: string | null): string | null {
  return text === null || Number.isNaN(Date.parse(text)) ? null : text;
}

/** Default retention of dead letters: 14 days. */
export const defaultDeadLetterTtlMs = 14 * 86_400_000;

export interface ForgetOptions {
  /** Deletes dead letters older than this. Default 14 days. */
  readonly olderThanMs?: number;
  /** Upper bound for the rows that one statement deletes. Default 1,000. */
  readonly batchSize?: number;
  /** Stops the deletion between two batches. */
  readonly signal?: AbortSignal;
}

/** Number of deleted dead letters, and how many of them were still open. */
export interface ForgetResult {
  readonly count: number;
  readonly open: number;
}

/** Deletes old dead letters, open and closed, in batches. */
export async function forgetDeadLetters(
  { database, sql }: DeadLetterStore,
  { olderThanMs = defaultDeadLetterTtlMs, batchSize = 1_000, signal }: ForgetOptions = {},
): Promise<ForgetResult> {
  let total: ForgetResult = { count: 0, open: 0 };
  while (signal?.aborted !== true) {
    const age = `${olderThanMs} milliseconds`;
    const { rows } = await database.run<ForgetResult>(sql.forget, [age, batchSize]);
    const { count, open } = rows[0] ?? { count: 0, open: 0 };
    total = { count: total.count + count, open: total.open + open };
    if (count < batchSize) break;
  }
  return total;
}
