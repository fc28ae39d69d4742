import { toFindings, type Breach, type ConservationFinding } from "./findings.ts";
import type { CheckedPage, ConsumerDeadLetters } from "./tables.ts";
import { addAccounts, noAccount, type CheckedWindow, type LaneAccount } from "./window.ts";

/**
 * `broken`: something is wrong. `incomplete`: what could be looked at is in order, but not everything could. Only `kept`
 * says that nothing is lost.
 */
export type ConservationVerdict = "kept" | "broken" | "incomplete";

export interface ConservationReport {
  /** All of it was looked at, and nothing is wrong: the verdict is `kept`. */
  readonly ok: boolean;
  readonly verdict: ConservationVerdict;
  /** False when it was stopped before its end; what was looked at by then is counted. */
  readonly finished: boolean;
  /** The first day with messages that were counted; older ones are not there, or cannot be proved any more. */
  readonly from: string;
  /** Written = sent + waiting + dead + discarded + unjudged; anything else is lost. */
  readonly total: Omit<LaneAccount, "lane">;
  readonly lanes: readonly LaneAccount[];
  /** Dead letters of consumers that are there. Their messages were sent, and are counted as that. */
  readonly consumerLetters: ConsumerDeadLetters;
  /** Rows looked at in the outbox, the queue, the schedule, the dead letters and the inbox. */
  readonly rows: number;
  /** Windows of messages, and tables from some row on, that were too busy each time: nothing is said about them. */
  readonly skipped: number;
  readonly findings: readonly ConservationFinding[];
  readonly durationMs: number;
}

/** Pure. What may be said about what was seen. */
export function decideVerdict(seen: {
  readonly broken: boolean;
  readonly everything: boolean;
}): ConservationVerdict {
  if (seen.broken) return "broken";
  return seen.everything ? "kept" : "incomplete";
}

/** Adds up what the walk of one verification sees. */
export class Tally {
  readonly #lanes = new Map<number, LaneAccount>();
  readonly #breaches: Breach[] = [];
  #rows = 0;
  #deadLetters: ConsumerDeadLetters = { open: 0, discarded: 0 };
  #skipped = 0;
  #finished = true;
  #first: string | undefined;

  /** Windows come in the order of their days. */
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
    const { open = 0, discarded = 0 } = checked?.consumerLetters ?? {};
    this.#deadLetters = {
      open: this.#deadLetters.open + open,
      discarded: this.#deadLetters.discarded + discarded,
    };
    this.#breaches.push(...(checked?.breaches ?? []));
  }

  markStopped(): void {
    this.#finished = false;
  }

  /** `oldest` is the first day that was looked at: it counts where nothing was found on any. */
  report(oldest: string, durationMs: number): ConservationReport {
    const from = this.#first ?? oldest;
    const lanes = [...this.#lanes.values()].toSorted((a, b) => a.lane - b.lane);
    const findings = toFindings(this.#breaches);
    const [rows, skipped, finished] = [this.#rows, this.#skipped, this.#finished];
    const verdict = decideVerdict({ broken: findings.length > 0, everything: finished && skipped === 0 });
    const total = lanes.reduce(addAccounts, noAccount);
    const ok = verdict === "kept";
    const consumerLetters = this.#deadLetters;
    return {
      ok,
      verdict,
      finished,
      from,
      total,
      lanes,
      consumerLetters,
      rows,
      skipped,
      findings,
      durationMs,
    };
  }
}
