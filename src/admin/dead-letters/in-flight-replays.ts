import { systemClock, type Clock } from "../../runtime/index.ts";
import { toArrayLiteral } from "../../storage/index.ts";
import type { DeadLetterAdmin } from "./dead-letter-admin.ts";
import { judgeOutcome, type InFlightReplay, type OutcomeRow, type Tally } from "./outcome.ts";

const MIN_POLL_MS = 25;
const MAX_POLL_MS = 500;

/** Replayed letters of one group until it is known what came of them. */
export class InFlightReplays {
  readonly #admin: DeadLetterAdmin;
  readonly #clock: Clock;
  readonly #open = new Map<string, InFlightReplay>();
  readonly #failing = new Set<string>();
  #tally: Tally = { replayed: 0, handled: 0, diedSame: 0, diedOtherwise: 0, failing: 0, error: null };
  #lookedMs = 0;
  #changedMs = 0;
  #pollMs = MIN_POLL_MS;

  constructor(admin: DeadLetterAdmin, clock: Clock = systemClock) {
    this.#admin = admin;
    this.#clock = clock;
  }

  get size(): number {
    return this.#open.size;
  }

  /** The streams that have one on its way. */
  get moving(): ReadonlySet<string> {
    return new Set([...this.#open.values()].flatMap(({ stream }) => (stream === null ? [] : [stream])));
  }

  get tally(): Tally {
    return { ...this.#tally, failing: this.#failing.size };
  }

  /** Milliseconds until it is worth looking again. */
  get dueMs(): number {
    return Math.max(0, this.#lookedMs + this.#pollMs - this.#clock.monotonicMs());
  }

  /** How long nothing has come of any of them. */
  get silentMs(): number {
    return this.#open.size === 0 ? 0 : this.#clock.monotonicMs() - this.#changedMs;
  }

  add(flights: readonly InFlightReplay[]): void {
    if (this.#open.size === 0) this.#changedMs = this.#clock.monotonicMs();
    for (const flight of flights) this.#open.set(flight.id, flight);
    this.#tally = { ...this.#tally, replayed: this.#tally.replayed + flights.length };
  }

  async poll(): Promise<void> {
    if (this.#open.size === 0) return;
    const beganMs = this.#clock.monotonicMs();
    const all = [...this.#open.values()];
    const { rows } = await this.#admin.store.database.run<OutcomeRow>(this.#admin.sql.outcomes, [
      toArrayLiteral(all.map(({ id }) => id)),
      toArrayLiteral(all.map(({ line }) => line)),
      toArrayLiteral(all.map(({ lane }) => lane)),
      toArrayLiteral(all.map(({ seq }) => seq)),
    ]);
    for (const row of rows) this.#settle(row);
    this.#lookedMs = this.#clock.monotonicMs();
    // Looking must not cost the database more than the work that is looked at.
    const took = (this.#lookedMs - beganMs) * 4;
    this.#pollMs = Math.min(MAX_POLL_MS, Math.max(MIN_POLL_MS, took));
  }

  #settle(row: OutcomeRow): void {
    const flight = this.#open.get(row.id);
    if (flight === undefined) return;
    const outcome = judgeOutcome(flight, row);
    if (outcome.kind === "waiting") return;
    this.#changedMs = this.#clock.monotonicMs();
    if (outcome.kind === "failing") {
      this.#failing.add(row.id);
      this.#tally = { ...this.#tally, error: outcome.error };
      return;
    }
    this.#open.delete(row.id);
    this.#failing.delete(row.id);
    const { handled, diedSame, diedOtherwise } = this.#tally;
    if (outcome.kind === "handled") this.#tally = { ...this.#tally, handled: handled + 1 };
    else if (outcome.same) this.#tally = { ...this.#tally, diedSame: diedSame + 1, error: outcome.error };
    else this.#tally = { ...this.#tally, diedOtherwise: diedOtherwise + 1, error: outcome.error };
  }
}
