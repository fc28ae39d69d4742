import { systemClock } from "../../runtime/index.ts";
import type { Database } from "../../storage/index.ts";
import { Checker, WINDOW_PAGES, type DayPages } from "./checker.ts";
import { findingsOf, type Breach, type ConservationFinding } from "./findings.ts";
import { placeNames, type Cursor } from "./places.ts";
import type { LaneAccount } from "./window.ts";

export interface ConservationReport {
  readonly ok: boolean;
  /** The first day whose messages were counted; older ones cannot be proved any more. */
  readonly from: string;
  /** Written = sent + waiting + dead + discarded + unjudged; anything else is lost. */
  readonly total: Omit<LaneAccount, "lane">;
  readonly lanes: readonly LaneAccount[];
  /** Rows looked at in the outbox, the queue, the schedule, the dead letters and the inbox. */
  readonly rows: number;
  /** Windows that were too busy to be looked at: nothing is said about them. */
  readonly skipped: number;
  readonly findings: readonly ConservationFinding[];
  readonly durationMs: number;
}

export interface VerifyConservationOptions {
  /** Only messages written on this day (YYYY-MM-DD, UTC) or later. Default: as far back as can be proved. */
  readonly since?: string;
  readonly signal?: AbortSignal;
  readonly progress?: (done: number, total: number) => void;
}

const nothing: Omit<LaneAccount, "lane"> = {
  written: 0,
  sent: 0,
  waiting: 0,
  dead: 0,
  discarded: 0,
  unjudged: 0,
  lost: 0,
};

/** Counts everything once, window by window, beside the running system. */
export async function verifyConservation(
  database: Database,
  schema: string,
  options: VerifyConservationOptions = {},
): Promise<ConservationReport> {
  const { since, signal } = options;
  const startedMs = systemClock.monotonicMs();
  const checker = new Checker(database, schema);
  const horizon = await checker.horizon(await checker.retentions());
  const from = since !== undefined && since > horizon.messages ? since : horizon.messages;
  const days = await checker.days(from);
  const tally = new Tally();
  await walkMessages(checker, days, tally, options);
  for (const name of placeNames) {
    let cursor: Cursor = null;
    do {
      const page = await checker.place(name, cursor, horizon.rows);
      tally.page(page);
      cursor = page?.next ?? null;
    } while (cursor !== null && signal?.aborted !== true);
  }
  tally.page(await checker.standing());
  return tally.report(from, systemClock.monotonicMs() - startedMs);
}

async function walkMessages(
  checker: Checker,
  days: readonly DayPages[],
  tally: Tally,
  { signal, progress }: VerifyConservationOptions,
): Promise<void> {
  const total = days.reduce((sum, { pages }) => sum + pages, 0);
  let [done, after, afterDay]: [number, string | null, string | null] = [0, null, null];
  for (const { day, pages } of days) {
    for (let page = 0; page < pages; page += WINDOW_PAGES) {
      if (signal?.aborted === true) return;
      const window = { day, fromPage: page, toPage: page + WINDOW_PAGES, after, afterDay };
      const checked = await checker.window(window);
      tally.window(checked);
      after = checked?.high ?? null;
      afterDay = day;
      done += Math.min(WINDOW_PAGES, pages - page);
      progress?.(done, total);
    }
  }
}

class Tally {
  readonly #lanes = new Map<number, LaneAccount>();
  readonly #breaches: Breach[] = [];
  #rows = 0;
  #skipped = 0;

  window(checked: Awaited<ReturnType<Checker["window"]>>): void {
    if (checked === undefined || !checked.whole) this.#skipped += 1;
    for (const account of checked?.lanes ?? []) {
      const known = this.#lanes.get(account.lane) ?? { lane: account.lane, ...nothing };
      this.#lanes.set(account.lane, { lane: account.lane, ...sum(known, account) });
    }
    this.#breaches.push(...(checked?.breaches ?? []));
  }

  page(checked: Awaited<ReturnType<Checker["place"]>>): void {
    if (checked === undefined) this.#skipped += 1;
    this.#rows += checked?.rows ?? 0;
    this.#breaches.push(...(checked?.breaches ?? []));
  }

  report(from: string, durationMs: number): ConservationReport {
    const lanes = [...this.#lanes.values()].toSorted((a, b) => a.lane - b.lane);
    const findings = findingsOf(this.#breaches);
    const total = lanes.reduce(sum, nothing);
    const [rows, skipped] = [this.#rows, this.#skipped];
    return { ok: findings.length === 0, from, total, lanes, rows, skipped, findings, durationMs };
  }
}

function sum(a: Omit<LaneAccount, "lane">, b: Omit<LaneAccount, "lane">): Omit<LaneAccount, "lane"> {
  return {
    written: a.written + b.written,
    sent: a.sent + b.sent,
    waiting: a.waiting + b.waiting,
    dead: a.dead + b.dead,
    discarded: a.discarded + b.discarded,
    unjudged: a.unjudged + b.unjudged,
    lost: a.lost + b.lost,
  };
}
