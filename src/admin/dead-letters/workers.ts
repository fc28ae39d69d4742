import { toArrayLiteral } from "../../storage/index.ts";
import type { DeadLetterAdmin } from "./dead-letter-admin.ts";

export interface ConsumerWorkers {
  /** Null for the outbox. */
  readonly consumer: string | null;
  /** Why nobody would take what is put into its line, and what to do; undefined when somebody does. */
  readonly why?: string;
}

interface WorkerRow {
  readonly consumer: string | null;
  readonly known: boolean;
  readonly working: boolean;
}

/** Whether somebody works on the lines of these consumers right now. */
export async function findWorkers(
  { store, sql }: DeadLetterAdmin,
  consumers: readonly (string | null)[],
): Promise<readonly ConsumerWorkers[]> {
  const { rows } = await store.database.run<WorkerRow>(sql.workers, [toArrayLiteral(consumers)]);
  return rows.map(({ consumer, known, working }) => ({
    consumer,
    ...(working ? {} : { why: `${describeIdle(consumer, known)}, then run this again` }),
  }));
}

/** Why a letter that was put back waits; undefined when somebody takes it. */
export async function explainWait(
  { store, sql }: DeadLetterAdmin,
  consumer: string | null,
): Promise<string | undefined> {
  const [row] = (await store.database.run<WorkerRow>(sql.workers, [toArrayLiteral([consumer])])).rows;
  return row === undefined || row.working ? undefined : describeIdle(consumer, row.known);
}

function describeIdle(consumer: string | null, known: boolean): string {
  if (consumer === null) return "no worker sends from the outbox; start one";
  const name = JSON.stringify(consumer);
  return known
    ? `no worker runs consumer ${name}; start it`
    : `consumer ${name} has never read from this database; start it`;
}
