import { quoteSchema, type Database } from "../storage/index.ts";
import { requestStatements } from "./statements.ts";

const BATCH = 5_000;

export interface ForgetRepliesOptions {
  readonly olderThanMs: number;
  /** Stops between two batches. */
  readonly signal?: AbortSignal;
}

/** Deletes replies older than `olderThanMs`. Resolves with the number of deleted rows. */
export async function forgetReplies(
  database: Database,
  schema: string,
  { olderThanMs, signal }: ForgetRepliesOptions,
): Promise<number> {
  const { forget } = requestStatements(quoteSchema(schema));
  let total = 0;
  while (signal?.aborted !== true) {
    const { rowCount } = await database.run(forget, [olderThanMs, BATCH]);
    total += rowCount;
    if (rowCount < BATCH) break;
  }
  return total;
}
