import { deadLetterStore, type DeadLetterStore } from "../../dead-letter/index.ts";
import { encodeChangedHints, wakeUpChannel } from "../../lanes/index.ts";
import { notify, quoteSchema, type Database } from "../../storage/index.ts";
import { deadLetterAdminStatements, type DeadLetterAdminStatements } from "./statements.ts";

/** What the operations on dead letters work with. */
export interface DeadLetterAdmin {
  readonly store: DeadLetterStore;
  readonly sql: DeadLetterAdminStatements;
  /** Tells whoever works on these lanes to look. A hint that is lost costs at most one poll interval. */
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
