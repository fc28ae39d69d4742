import { systemClock } from "../../runtime/index.ts";
import type { Database } from "../../storage/index.ts";
import { Checker, WINDOW_PAGES, type DayPages, type Horizon } from "./checker.ts";
import { BusyRetry } from "./busy-retry.ts";
import { checkedTables, type CheckedPage, type Cursor, type CheckedTable } from "./tables.ts";
import { Tally, type ConservationReport } from "./tally.ts";
import type { CheckedWindow, Window } from "./window.ts";

export interface VerifyConservationOptions {
  /** Only messages written on this day (YYYY-MM-DD, UTC) or later. Default: as far back as can be proved. */
  readonly since?: string;
  /** Ends it between two windows; the report then says that it did not finish. */
  readonly signal?: AbortSignal;
  readonly progress?: (done: number, total: number) => void;
}

/** A window that takes too long whole is looked at in this many pieces. */
const PIECES = 8;

/** Counts everything once, window by window, beside the running system. */
export async function verifyConservation(
  database: Database,
  schema: string,
  options: VerifyConservationOptions = {},
): Promise<ConservationReport> {
  const { since } = options;
  const startedMs = systemClock.monotonicMs();
  const checker = new Checker(database, schema);
  const horizon = await checker.findHorizon(await checker.readRetentions());
  const oldest = since !== undefined && since > horizon.messages ? since : horizon.messages;
  const tally = new Tally();
  await new Walk(checker, tally, options).run(await checker.listDays(oldest), horizon);
  return tally.report(oldest, systemClock.monotonicMs() - startedMs);
}

class Walk {
  readonly #checker: Checker;
  readonly #tally: Tally;
  readonly #options: VerifyConservationOptions;
  readonly #retry: BusyRetry;

  constructor(checker: Checker, tally: Tally, options: VerifyConservationOptions) {
    this.#checker = checker;
    this.#tally = tally;
    this.#options = options;
    this.#retry = new BusyRetry(options.signal);
  }

  async run(days: readonly DayPages[], horizon: Horizon): Promise<void> {
    await this.#checkMessages(days);
    for (const name of checkedTables) await this.#checkTable(name, horizon.rows);
    if (this.#isStopped()) return;
    this.#tally.addPage(await this.#retry.run(() => this.#checker.checkStanding()));
  }

  async #checkMessages(days: readonly DayPages[]): Promise<void> {
    const total = days.reduce((sum, { pages }) => sum + pages, 0);
    let [done, after, afterDay]: [number, string | null, string | null] = [0, null, null];
    for (const { day, pages } of days) {
      for (let page = 0; page < pages; page += WINDOW_PAGES) {
        if (this.#isStopped()) return;
        const window: Window = { day, fromPage: page, toPage: page + WINDOW_PAGES, after, afterDay };
        const checked: CheckedWindow | undefined = await this.#retry.run(
          () => this.#checker.checkWindow(window),
          () => this.#checker.checkInPieces(window, PIECES, this.#options.signal),
        );
        this.#tally.addWindow(day, checked);
        after = checked?.high ?? null;
        afterDay = day;
        done += Math.min(WINDOW_PAGES, pages - page);
        this.#options.progress?.(done, total);
      }
    }
  }

  async #checkTable(name: CheckedTable, oldest: string): Promise<void> {
    let cursor: Cursor = null;
    do {
      if (this.#isStopped()) return;
      const after: Cursor = cursor;
      const page: CheckedPage | undefined = await this.#retry.run(() =>
        this.#checker.checkTablePage(name, after, oldest),
      );
      this.#tally.addPage(page);
      cursor = page?.next ?? null;
    } while (cursor !== null);
  }

  #isStopped(): boolean {
    if (this.#options.signal?.aborted !== true) return false;
    this.#tally.markStopped();
    return true;
  }
}
