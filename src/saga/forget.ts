import { quoteSchema, type Database } from "../storage/index.ts";
import { sagaStatements } from "./statements.ts";

const BATCH = 500;
const PENDING_INPUT_BATCH = 5_000;

export interface ForgetSagasOptions {
  /** How long ago an instance must have ended. */
  readonly olderThanMs: number;
  /** How many one statement deletes, with everything that belongs to them. Default 500. */
  readonly batchSize?: number;
  /** Stops between two batches. */
  readonly signal?: AbortSignal;
}

/**
 * Deletes instances that ended so long ago, with their incidents, and mail nobody came for. Their lines stay in the
 * audit log, which has a retention of its own. Resolves with their number.
 */
export async function forgetSagas(
  database: Database,
  schema: string,
  { olderThanMs, batchSize = BATCH, signal }: ForgetSagasOptions,
): Promise<{ readonly instances: number; readonly mail: number }> {
  const { forget, forgetUnclaimed } = sagaStatements(quoteSchema(schema));
  const inBatches = async (removed: () => Promise<number>, size: number): Promise<number> => {
    let total = 0;
    while (signal?.aborted !== true) {
      const count = await removed();
      total += count;
      if (count < size) break;
    }
    return total;
  };
  const instances = await inBatches(
    async () => (await database.run(forget, [olderThanMs, batchSize])).rowCount,
    batchSize,
  );
  const mail = await inBatches(
    async () => (await database.run(forgetUnclaimed, [PENDING_INPUT_BATCH])).rowCount,
    PENDING_INPUT_BATCH,
  );
  return { instances, mail };
}
