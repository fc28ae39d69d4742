import {
  countRepublish,
  republish,
  type RepublishOptions,
  type RepublishResult,
} from "../../outbox/index.ts";
import { quoteSchema, type Database } from "../../storage/index.ts";
import { outboxStatements } from "./statements.ts";

export type RepublishWindow = Pick<RepublishOptions, "from" | "to" | "topic" | "type" | "after">;

export interface RepublishPlan {
  /** How many messages would be sent again. */
  readonly count: number;
  /** The first day that is in the archive; null when there is none. */
  readonly archiveFrom: string | null;
  /** False when the window begins before the archive does: what was older is gone. */
  readonly isWhole: boolean;
}

/** Counts what `republishWindow` would send again. */
export async function planRepublish(
  database: Database,
  schema: string,
  window: RepublishWindow,
): Promise<RepublishPlan> {
  const count = await countRepublish(database, schema, window);
  const quoted = quoteSchema(schema);
  const [archive] = (
    await database.run<{ day: string | null }>(outboxStatements(quoted).archiveFrom, [quoted])
  ).rows;
  const archiveFrom = archive?.day ?? null;
  return { count, archiveFrom, isWhole: archiveFrom !== null && window.from >= new Date(archiveFrom) };
}

/** Sends the messages of a time window again, under their own ids and in the old order of each key. */
export function republishWindow(
  database: Database,
  schema: string,
  options: RepublishOptions & { readonly actor: string; readonly reason: string },
): Promise<RepublishResult> {
  return republish(database, schema, options);
}
