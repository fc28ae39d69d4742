import type { DeadLetterStore } from "./dead-letter.ts";

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
