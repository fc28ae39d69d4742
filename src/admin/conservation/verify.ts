import { sleep, systemClock } from "../../runtime/index.ts";
import type { Database } from "../../storage/index.ts";
import { Checker, type DayPages, type Horizon, WINDOW_PAGES } from "./checker.ts";
import { type Breach, type ConservationFinding, toFindings } from "./findings.ts";
import {
  type CheckedPage,
  type CheckedTable,
  checkedTables,
  type ConsumerDeadLetters,
  type Cursor,
} from "./tables.ts";
import { addAccounts, type CheckedWindow, type LaneAccount, noAccount, type Window } from "./window.ts";

/**
 * `broken`: damage was found. `incomplete`: no damage was found, but some parts could not be checked. `kept`: everything
 * was checked and nothing is lost.
 */
export type ConservationVerdict = "kept" | "broken" | "incomplete";

export interface ConservationReport {
  /** True if the verdict is `kept`. */
  readonly ok: boolean;
  readonly verdict: ConservationVerdict;
  /** False if `signal` stopped the check. The counts then cover the checked part. */
  readonly finished: boolean;
  /** First day with counted messages. Older days are dropped or can no longer be checked. */
  readonly from: string;
  /** Written = sent + waiting + dead + discarded + unjudged; anything else is lost. */
  readonly total: Omit<LaneAccount, "lane">;
  readonly lanes: readonly LaneAccount[];
  /** Stored dead letters of consumers. Their messages count as sent. */
  readonly consumerDeadLetters: ConsumerDeadLetters;
  /** Number of checked rows in the outbox, queue, schedule, dead letters and inbox. */
  readonly rows: number;
  /** Number of message windows and table pages that were too busy to be checked. */
  readonly skipped: number;
  readonly findings: readonly ConservationFinding[];
  readonly durationMs: number;
}

/** Decides the verdict. `everything`: all parts were checked. Pure. */
export function decideVerdict(seen: {
  readonly broken: boolean;
  readonly everything: boolean;
}): ConservationVerdict {
  if (seen.broken) return "broken";
  return seen.everything ? "kept" : "incomplete";
}

/** Adds up the results of one verification. */
export class Tally {
  readonly #lanes = new Map<number, LaneAccount>();
  readonly #breaches: Breach[] = [];
  #rows = 0;
  #deadLetters: ConsumerDeadLetters = { open: 0, discarded: 0 };
  #skipped = 0;
  #finished = true;
  #first: string | undefined;

  /** Adds a window. Windows must be added in the order of their days. */
  addWindow(day: string, checked: CheckedWindow | undefined): void {
    if (checked === undefined || checked.messages > 0) this.#first ??= day;
    if (checked === undefined || !checked.whole) this.#skipped += 1;
    for (const account of checked?.lanes ?? []) {
      const { lane } = account;
      this.#lanes.set(lane, { lane, ...addAccounts(this.#lanes.get(lane) ?? noAccount, account) });
    }
    this.#breaches.push(...(checked?.breaches ?? []));
  }

  addPage(checked: CheckedPage | undefined): void {
    if (checked === undefined) this.#skipped += 1;
    this.#rows += checked?.rows ?? 0;
    const { open = 0, discarded = 0 } = checked?.consumerDeadLetters ?? {};
    this.#deadLetters = {
      open: this.#deadLetters.open + open,
      discarded: this.#deadLetters.discarded + discarded,
    };
    this.#breaches.push(...(checked?.breaches ?? []));
  }

  markStopped(): void {
    this.#finished = false;
  }

  /** Builds the report. `oldest` is the first checked day, used if no messages were found. */
  report(oldest: string, durationMs: number): ConservationReport {
    const from = this.#first ?? oldest;
    const lanes = [...this.#lanes.values()].toSorted((a, b) => a.lane - b.lane);
    const findings = toFindings(this.#breaches);
    const [rows, skipped, finished] = [this.#rows, this.#skipped, this.#finished];
    const verdict = decideVerdict({ broken: findings.length > 0, everything: finished && skipped === 0 });
    const total = lanes.reduce(addAccounts, noAccount);
    const ok = verdict === "kept";
    const consumerDeadLetters = this.#deadLetters;
    return {
      ok,
      verdict,
      finished,
      from,
      total,
      lanes,
      consumerDeadLetters,
      rows,
      skipped,
      findings,
      durationMs,
    };
  }
}

export interface VerifyConservationOptions {
  /** Checks only messages written on this day (YYYY-MM-DD, UTC) or later. Default: all days that can be checked. */
  readonly since?: string;
  /** Stops between two windows; the report then has `finished: false`. */
  readonly signal?: AbortSignal;
  readonly progress?: (done: number, total: number) => void;
}

/** A window that times out is checked in this many pieces. */
const PIECES = 8;

/** Checks once that no written message is lost. Read-only, and safe while workers run. */
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
/** After this many failures, busy windows are no longer retried. */
const MAX_FAILURES = 10;

/** Retries a check after a pause if the tables were too busy. */
class BusyRetry {
  readonly #signal: AbortSignal | undefined;
  #failures = 0;

  constructor(signal?: AbortSignal) {
    this.#signal = signal;
  }

  get isLeft(): boolean {
    return this.#failures < MAX_FAILURES && this.#signal?.aborted !== true;
  }

  /** Resolves with undefined if all tries were too busy. `last` is a cheaper variant that is tried at the end. */
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
