import type { DeadLetterStore } from "./dead-letter.ts";

/** How long a letter is kept: 14 days. */
export const deadLetterTtlMs = 14 * 86_400_000;

export interface ForgetOptions {
  /** Letters that died longer ago are deleted. Default 14 days. */
  readonly olderThanMs?: number;
  /** How many one statement deletes. Default 1,000. */
  readonly batchSize?: number;
  /** Stops between two batches. */
  readonly signal?: AbortSignal;
}

/** Deletes old letters, open and closed, in small batches. Resolves with how many. */
export async function forgetDeadLetters(
  { database, sql }: DeadLetterStore,
  { olderThanMs = deadLetterTtlMs, batchSize = 1_000, signal }: ForgetOptions = {},
): Promise<number> {
  let total = 0;
  while (signal?.aborted !== true) {
    const age = `${olderThanMs} milliseconds`;
    const { rows } = await database.run<{ count: number }>(sql.forget, [age, batchSize]);
    const count = rows[0]?.count ?? 0;
    total += count;
    if (count < batchSize) break;
  }
  return total;
}
