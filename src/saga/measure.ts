import { quoteSchema, type Database } from "../storage/index.ts";
import { sagaStatements } from "./statements.ts";
import { hasEnded, sagaStatuses } from "./state.ts";

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
