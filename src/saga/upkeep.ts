import { type Database, quoteSchema } from "../storage/index.ts";
import { hasEnded, sagaStatuses } from "./state.ts";
import { sagaStatements } from "./statements.ts";

const BATCH = 500;
const PENDING_INPUT_BATCH = 5_000;

export interface ForgetSagasOptions {
  /** Minimum time since the end of an instance, in milliseconds. */
  readonly olderThanMs: number;
  /** How many instances one statement deletes. Default 500. */
  readonly batchSize?: number;
  /** Stops between two batches. */
  readonly signal?: AbortSignal;
}

/**
 * Deletes instances that ended longer ago than `olderThanMs`, their incidents, and expired pending input. Their lines in
 * the audit log stay, since the log has its own retention. Resolves with the numbers of deleted rows.
 */
export async function forgetSagas(
  database: Database,
  schema: string,
  { olderThanMs, batchSize = BATCH, signal }: ForgetSagasOptions,
): Promise<{ readonly instances: number; readonly inputs: number }> {
  const { forget, forgetUnclaimed } = sagaStatements(quoteSchema(schema));
  const inBatches = async (removeBatch: () => Promise<number>, size: number): Promise<number> => {
    let total = 0;
    while (signal?.aborted !== true) {
      const count = await removeBatch();
      total += count;
      if (count < size) break;
    }
    return total;
  };
  const instances = await inBatches(
    async () => (await database.run(forget, [olderThanMs, batchSize])).rowCount,
    batchSize,
  );
  const inputs = await inBatches(
    async () => (await database.run(forgetUnclaimed, [PENDING_INPUT_BATCH])).rowCount,
    PENDING_INPUT_BATCH,
  );
  return { instances, inputs };
}

export interface SagaCount {
  readonly status: string;
  readonly count: number;
}

/** Counts sagas by status, without ended ones, plus `stuck`: sagas more than 10 minutes overdue. */
export async function measureSagas(database: Database, schema: string): Promise<readonly SagaCount[]> {
  const { rows } = await database.run<SagaCount>(sagaStatements(quoteSchema(schema)).measure);
  const counted = new Map(rows.map(({ status, count }) => [status, count]));
  const open = sagaStatuses.filter((status) => !hasEnded(status));
  return [...open, "stuck"].map((status) => ({ status, count: counted.get(status) ?? 0 }));
}
