import type { Database } from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import { MonthKeeper } from "./month-keeper.ts";
import { monthlyTables } from "./months.ts";

export interface TidyMonthsOptions {
  readonly retentionMs: number;
  readonly observer: Observer;
  /** Stops between two months. */
  readonly signal?: AbortSignal;
}

/** Attaches months ahead and drops those past their retention. What is in use just now waits for the next round. */
export async function maintainMonths(
  database: Database,
  schema: string,
  { retentionMs, observer, signal }: TidyMonthsOptions,
): Promise<void> {
  const keeper = new MonthKeeper(database, schema);
  for (const table of monthlyTables) {
    const { attach, retire } = await keeper.plan(table, retentionMs);
    for (const part of attach) {
      if (signal?.aborted === true) return;
      if ((await keeper.attach(part)) === "done") {
        observer.emit("history.partition", { action: "attached", partition: part.name });
      }
    }
    for (const part of retire) {
      if (signal?.aborted === true) return;
      const outcome = await keeper.drop(part);
      if (outcome === "taken") continue;
      if (outcome === "broken") {
        const text = `Rows of ${part.name} are missing that were sealed. It is kept as it is.`;
        observer.emit("audit.broken", { kind: "row_missing", seal: null, error: text });
      }
      observer.emit("history.partition", {
        action: outcome === "done" ? "dropped" : "kept",
        partition: part.name,
      });
    }
  }
}
