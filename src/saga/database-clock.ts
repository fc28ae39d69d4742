import { systemClock } from "../runtime/index.ts";

/** For so long our own steady clock cannot have drifted from the database's by anything that matters. */
const MAX_READING_AGE_MS = 10_000;

/** The database's clock as far as this process knows it: as it was last read, reckoned on by our own steady clock. */
export class DatabaseClock {
  #lastReading: { readonly nowMs: number; readonly atMs: number } | undefined;

  /** A reading took some time to come here. One that is behind what we reckon took longer than the one before. */
  update(nowMs: number): void {
    if (nowMs > (this.nowMs ?? 0)) this.#lastReading = { nowMs, atMs: systemClock.monotonicMs() };
  }

  /** Undefined when it was not read lately. */
  get nowMs(): number | undefined {
    const sinceMs =
      this.#lastReading === undefined ? Infinity : systemClock.monotonicMs() - this.#lastReading.atMs;
    return this.#lastReading === undefined || sinceMs > MAX_READING_AGE_MS
      ? undefined
      : this.#lastReading.nowMs + sinceMs;
  }
}
