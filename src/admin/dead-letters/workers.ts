import { textArray } from "../../storage/index.ts";
import type { LetterAdmin } from "./letter-admin.ts";

export interface LineWorker {
  /** Null for the outbox. */
  readonly consumer: string | null;
  /** Why nobody would take what is put into its line; undefined when somebody does. */
  readonly why?: string;
}

interface WorkerRow {
  readonly consumer: string | null;
  readonly known: boolean;
  readonly working: boolean;
}

/** Whether somebody works on the lines of these consumers right now. */
export async function workersOf(
  { store, sql }: LetterAdmin,
  consumers: readonly (string | null)[],
): Promise<readonly LineWorker[]> {
  const { rows } = await store.database.run<WorkerRow>(sql.workers, [textArray(consumers)]);
  return rows.map(({ consumer, known, working }) => ({
    consumer,
    ...(working ? {} : { why: idle(consumer, known) }),
  }));
}

function idle(consumer: string | null, known: boolean): string {
  if (consumer === null) return "no worker sends from the outbox; start one, then run this again";
  const name = JSON.stringify(consumer);
  return known
    ? `no worker runs consumer ${name}; start it, then run this again`
    : `consumer ${name} has never read from this database; start it, then run this again`;
}
