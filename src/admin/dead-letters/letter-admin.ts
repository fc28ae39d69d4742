import { deadLetterStore, type DeadLetterStore } from "../../dead-letter/index.ts";
import { changedHints, wakeUpChannel } from "../../lanes/index.ts";
import { notify, quotedSchema, type Database } from "../../storage/index.ts";
import { letterStatements, type LetterStatements } from "./statements.ts";

/** What the operations on dead letters work with. */
export interface LetterAdmin {
  readonly store: DeadLetterStore;
  readonly sql: LetterStatements;
  /** Tells whoever works on these lanes to look. A hint that is lost costs at most one poll interval. */
  readonly wake: (lanes: Iterable<number>) => Promise<void>;
}

export function letterAdmin(database: Database, schema: string): LetterAdmin {
  const channel = wakeUpChannel(schema);
  return {
    store: deadLetterStore(database, schema),
    sql: letterStatements(quotedSchema(schema)),
    wake: async (lanes) => {
      for (const hint of changedHints(lanes)) await notify(database, channel, hint).catch(() => undefined);
    },
  };
}
