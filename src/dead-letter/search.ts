import { SagaboxError } from "../errors/index.ts";
import type { Message } from "../message/index.ts";
import { rejectUnknownKeys, wholeNumber } from "../options/index.ts";
import { toDeadLetter, type DeadLetter, type DeadLetterRow, type DeadLetterStore } from "./dead-letter.ts";
import type { DeadLetterReason } from "./describe-failure.ts";
import { toConditions, filterKeys, type DeadLetterCriteria } from "./filter.ts";

export interface DeadLetterFilter extends DeadLetterCriteria {
  /** Upper bound for the result, 1 to 10,000. Default 50. */
  readonly limit?: number;
  /** Only dead letters older than this id: the last id of the previous page. */
  readonly after?: string;
}

export interface DeadLetterSummary {
  readonly id: string;
  readonly origin: "outbox" | "consumer";
  readonly consumer: string | null;
  readonly messageId: string;
  readonly type: string;
  readonly topic: string;
  readonly key: string | null;
  readonly correlationId: string;
  readonly reason: DeadLetterReason;
  readonly attempts: number;
  readonly errorType: string;
  readonly errorMessage: string;
  readonly failedAt: string;
  readonly closedAs: "replayed" | "discarded" | null;
  /** Id of the failure's cause. Null for a dead letter of an older version that is not grouped yet. */
  readonly fingerprint: string | null;
}

/** Output of `dlq show --json`: the original message and the details of its failure. */
export interface DeadLetterDetail {
  readonly original_message: Message;
  readonly dlq_metadata: {
    readonly id: string;
    readonly reason: DeadLetterReason;
    readonly error_type: string;
    readonly error_message: string;
    readonly stack_trace: string | null;
    readonly retry_count: number;
    readonly failed_at: string;
    readonly source_topic: string;
    readonly consumer_group: string | null;
    readonly original_timestamp: string;
    readonly closed_at: string | null;
    readonly closed_as: "replayed" | "discarded" | null;
    readonly fingerprint: string | null;
  };
}

type SummaryRow = Pick<
  DeadLetterRow,
  | ("id" | "origin" | "consumer" | "message_id" | "type" | "topic" | "key" | "reason")
  | (
      | "correlation_id"
      | "attempts"
      | "error_type"
      | "error_message"
      | "failed_at"
      | "closed_as"
      | "fingerprint"
    )
>;

const KNOWN = ["limit", "after", ...filterKeys] as const;

/** Lists dead letters, newest first. Throws OPTIONS_INVALID for an invalid filter. */
export async function listDeadLetters(
  { database, sql }: DeadLetterStore,
  filter: DeadLetterFilter = {},
): Promise<readonly DeadLetterSummary[]> {
  rejectUnknownKeys("deadLetters.list", filter, KNOWN);
  const { limit = 50, after = null } = filter;
  wholeNumber("deadLetters.list: limit", limit, { min: 1, max: 10_000 });
  if (after !== null) assertId(after);
  const { names, params } = toConditions("deadLetters.list", filter);
  const { rows } = await database.run<SummaryRow>(sql.list(names), [limit, after, ...params]);
  return rows.map((row) => ({
    id: row.id,
    origin: row.origin,
    consumer: row.consumer,
    messageId: row.message_id,
    type: row.type,
    topic: row.topic,
    key: row.key,
    correlationId: row.correlation_id,
    reason: row.reason,
    attempts: row.attempts,
    errorType: row.error_type,
    errorMessage: row.error_message,
    failedAt: row.failed_at,
    closedAs: row.closed_as,
    fingerprint: row.fingerprint,
  }));
}

/** Reads a dead letter with the details of its failure. Throws DEAD_LETTER_NOT_FOUND. */
export async function showDeadLetter(store: DeadLetterStore, id: string): Promise<DeadLetterDetail> {
  const letter = await readDeadLetter(store, id);
  return {
    original_message: letter.message,
    dlq_metadata: {
      id: letter.id,
      reason: letter.reason,
      error_type: letter.errorType,
      error_message: letter.errorMessage,
      stack_trace: letter.stackTrace,
      retry_count: letter.attempts,
      failed_at: letter.failedAt,
      source_topic: letter.message.topic,
      consumer_group: letter.consumer,
      original_timestamp: letter.message.writtenAt,
      closed_at: letter.closedAt,
      closed_as: letter.closedAs,
      fingerprint: letter.fingerprint,
    },
  };
}

export async function readDeadLetter({ database, sql }: DeadLetterStore, id: string): Promise<DeadLetter> {
  assertId(id);
  const { rows } = await database.run<DeadLetterRow>(sql.show, [id]);
  if (rows[0] === undefined) throw notFound(id);
  return toDeadLetter(rows[0]);
}

export function assertId(id: string): void {
  if (!/^\d{1,18}$/.test(id)) throw notFound(id);
}

export function notFound(id: string): SagaboxError {
  return new SagaboxError(
    "DEAD_LETTER_NOT_FOUND",
    `There is no dead letter ${JSON.stringify(String(id).slice(0, 40))}. List the dead letters to see their ids.`,
  );
}
