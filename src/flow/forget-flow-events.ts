import { quoteSchema, type Database } from "../storage/index.ts";
import { flowStatements } from "./statements.ts";

const BATCH = 5_000;

export interface ForgetFlowEventsOptions {
  readonly olderThanMs: number;
  /** Upper bound for the rows that one statement deletes. Default 5,000. */
  readonly batchSize?: number;
  /** Stops the deletion between two batches. */
  readonly signal?: AbortSignal;
}

/** Deletes paths without a new event for `olderThanMs`, finished or not. Resolves with the number of deleted events. */
export async function forgetFlowEvents(
  database: Database,
  schema: string,
  { olderThanMs, batchSize = BATCH, signal }: ForgetFlowEventsOptions,
): Promise<number> {
  const { forget } = flowStatements(quoteSchema(schema));
  let total = 0;
  while (signal?.aborted !== true) {
    const { rowCount } = await database.run(forget, [olderThanMs, batchSize]);
    total += rowCount;
    if (rowCount < batchSize) break;
  }
  return total;
}
