import { systemClock } from "../runtime/index.ts";

/** For so long our own steady clock cannot have drifted from the database's by anything that matters. */
const GOOD_FOR_MS = 10_000;

/** The database's clock as far as this process knows it: as it was last read, reckoned on by our own steady clock. */
export class DatabaseClock {
  #read: { readonly nowMs: number; readonly atMs: number } | undefined;

  /** A reading took some time to come here. One that is behind what we reckon took longer than the one before. */
  hear(nowMs: number): void {
    if (nowMs > (this.nowMs ?? 0)) this.#read = { nowMs, atMs: systemClock.monotonicMs() };
  }

  /** Undefined when it was not read lately. */
  get nowMs(): number | undefined {
    const sinceMs = this.#read === undefined ? Infinity : systemClock.monotonicMs() - this.#read.atMs;
    return this.#read === undefined || sinceMs > GOOD_FOR_MS ? undefined : this.#read.nowMs + sinceMs;
  }
}
