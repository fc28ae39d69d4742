import { quoteSchema, type Database } from "../storage/index.ts";
import { flowStatements } from "./statements.ts";

const BATCH = 5_000;

export interface ForgetFlowEventsOptions {
  readonly olderThanMs: number;
  /** How many one statement deletes. Default 5,000. */
  readonly batchSize?: number;
  /** Stops between two batches. */
  readonly signal?: AbortSignal;
}

/** Deletes paths on which nothing was seen for so long, finished or not. Resolves with the number of events. */
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
