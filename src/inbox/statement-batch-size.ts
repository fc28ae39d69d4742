import type { Clock } from "../runtime/index.ts";

const MAX_STATEMENTS = 16;
/** What ends this soon is worth no second thought. */
const SOON_MS = 8;
/** A lot may take so much longer than one statement by itself: what it saves, others on the machine can use. */
const WORTH = 1.5;
/** Somebody else wants the same rows: a lot would hold its locks longer than a statement does. */
const CONTENDED_MS = 60_000;
/** Rests are long enough that looking again costs little. */
const REST_FACTOR = 25;
const MIN_REST_MS = 1_000;

/**
 * How many statements share a transaction. They run one after the other, so a lot is one of what runs at once, however
 * many they are. That is cheaper as long as they are quick; slow ones are better off side by side, and then the answer
 * is one.
 */
export class StatementBatchSize {
  readonly #clock: Clock;
  readonly #max: number;
  #batchMs = 0;
  #aloneMs = 0;
  #restUntilMs = Number.NEGATIVE_INFINITY;

  constructor(most: number, clock: Clock) {
    this.#clock = clock;
    this.#max = most;
  }

  get most(): number {
    if (this.#max === 1 || this.#clock.monotonicMs() < this.#restUntilMs) return 1;
    return this.#max;
  }

  /** Many at once took so long from begin to end. One that was slow may be chance. */
  recordDuration(count: number, ms: number): void {
    if (count === 1) {
      this.#aloneMs += (ms - this.#aloneMs) / 8;
      return;
    }
    const limitMs = Math.max(SOON_MS, WORTH * this.#aloneMs);
    this.#batchMs += (Math.min(ms, 2 * limitMs) - this.#batchMs) / 8;
    if (this.#batchMs > limitMs) this.#rest(Math.max(MIN_REST_MS, REST_FACTOR * this.#batchMs));
  }

  recordContention(): void {
    this.#rest(CONTENDED_MS);
  }

  #rest(ms: number): void {
    this.#batchMs = 0;
    this.#restUntilMs = this.#clock.monotonicMs() + ms;
  }
}

/** Half of what a consumer holds unless it is told otherwise, so that one lot is written while another commits. */
export function maxBatchSize(concurrency: number): number {
  return Math.min(MAX_STATEMENTS, 2 * concurrency);
}
