import { sleep, systemClock } from "../../runtime/index.ts";
import type { Database } from "../../storage/index.ts";
import { Checker, type DayPages, type Horizon, WINDOW_PAGES } from "./checker.ts";
import { type CheckedPage, type CheckedTable, checkedTables, type Cursor } from "./tables.ts";
import { type ConservationReport, Tally } from "./tally.ts";
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

const PAUSES_MS = [250, 1_000] as const;
/** Where everything is busy for good, asking for each of a thousand windows three times helps nobody. */
const MAX_FAILURES = 10;

/** Asks again, after a pause, for what was too busy to be looked at. */
class BusyRetry {
  readonly #signal: AbortSignal | undefined;
  #failures = 0;

  constructor(signal?: AbortSignal) {
    this.#signal = signal;
  }

  get isLeft(): boolean {
    return this.#failures < MAX_FAILURES && this.#signal?.aborted !== true;
  }

  /** Undefined when it was too busy every time. `last` is tried at the end, where it costs less than the whole. */
  async run<T>(
    look: () => Promise<T | undefined>,
    last?: () => Promise<T | undefined>,
  ): Promise<T | undefined> {
    let seen = await look();
    for (const pauseMs of PAUSES_MS) {
      if (seen !== undefined || !this.isLeft || !(await sleep(pauseMs, this.#signal))) return seen;
      seen = await look();
    }
    seen ??= await last?.();
    if (seen === undefined) this.#failures += 1;
    return seen;
  }
}
