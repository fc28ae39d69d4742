import type { DeadLetterStore } from "./dead-letter.ts";

/** How long a letter is kept: 14 days. */
export const defaultDeadLetterTtlMs = 14 * 86_400_000;

export interface ForgetOptions {
  /** Letters that died longer ago are deleted. Default 14 days. */
  readonly olderThanMs?: number;
  /** How many one statement deletes. Default 1,000. */
  readonly batchSize?: number;
  /** Stops between two batches. */
  readonly signal?: AbortSignal;
}

/** How many letters are gone, and how many of them nobody had dealt with. */
export interface ForgetResult {
  readonly count: number;
  readonly open: number;
}

/** Deletes old letters, open and closed, in small batches. */
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
