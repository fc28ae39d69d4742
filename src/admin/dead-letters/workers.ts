import { textArray } from "../../storage/index.ts";
import type { LetterAdmin } from "./letter-admin.ts";

export interface LineWorker {
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
export async function workersOf(
  { store, sql }: LetterAdmin,
  consumers: readonly (string | null)[],
): Promise<readonly LineWorker[]> {
  const { rows } = await store.database.run<WorkerRow>(sql.workers, [textArray(consumers)]);
  return rows.map(({ consumer, known, working }) => ({
    consumer,
    ...(working ? {} : { why: `${idle(consumer, known)}, then run this again` }),
  }));
}

/** Why a letter that was put back waits; undefined when somebody takes it. */
export async function whyItWaits(
  { store, sql }: LetterAdmin,
  consumer: string | null,
): Promise<string | undefined> {
  const [row] = (await store.database.run<WorkerRow>(sql.workers, [textArray([consumer])])).rows;
  return row === undefined || row.working ? undefined : idle(consumer, row.known);
}

function idle(consumer: string | null, known: boolean): string {
  if (consumer === null) return "no worker sends from the outbox; start one";
  const name = JSON.stringify(consumer);
  return known
    ? `no worker runs consumer ${name}; start it`
    : `consumer ${name} has never read from this database; start it`;
}
