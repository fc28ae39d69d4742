import { deadLetterStore, type DeadLetterStore } from "../../dead-letter/index.ts";
import { encodeChangedHints, wakeUpChannel } from "../../lanes/index.ts";
import { type Database, notify, quoteSchema, toArrayLiteral } from "../../storage/index.ts";
import { deadLetterAdminStatements, type DeadLetterAdminStatements } from "./statements.ts";

/** Access to the dead letters of one schema, for operator actions. */
export interface DeadLetterAdmin {
  readonly store: DeadLetterStore;
  readonly sql: DeadLetterAdminStatements;
  /** Wakes the workers of these lanes. If the notification is lost, they find the rows with their next poll. */
  readonly wake: (lanes: Iterable<number>) => Promise<void>;
}

export function createDeadLetterAdmin(database: Database, schema: string): DeadLetterAdmin {
  const channel = wakeUpChannel(schema);
  return {
    store: deadLetterStore(database, schema),
    sql: deadLetterAdminStatements(quoteSchema(schema)),
    wake: async (lanes) => {
      for (const hint of encodeChangedHints(lanes))
        await notify(database, channel, hint).catch(() => undefined);
    },
  };
}

export interface ConsumerWorkers {
  /** Null for the outbox. */
  readonly consumer: string | null;
  /** Why no worker would process its messages, and what to do; undefined if a worker runs. */
  readonly why?: string;
}

interface WorkerRow {
  readonly consumer: string | null;
  readonly known: boolean;
  readonly working: boolean;
}

/** Returns whether workers run for these consumers (null for the outbox). */
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

/** Returns why a replayed message will wait, or undefined if a worker runs for its consumer (null for the outbox). */
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
