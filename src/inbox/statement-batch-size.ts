import type { Clock } from "../runtime/index.ts";

const MAX_STATEMENTS = 16;
/** Batches faster than this are always kept. */
const FAST_BATCH_MS = 8;
/** A batch may take this many times as long as a single statement, because it saves work on the server. */
const MAX_SLOWDOWN = 1.5;
/** How long batching is off after a lock conflict: a batch holds its row locks longer than a single statement. */
const CONTENTION_PAUSE_MS = 60_000;
/** How long batching is off after slow batches, as a multiple of their duration. */
const PAUSE_FACTOR = 25;
const MIN_PAUSE_MS = 1_000;

/**
 * Decides how many statements share a transaction. They run one after the other, and a batch counts as one of the
 * consumer's `concurrency`. That is cheaper while statements are fast; slow ones run concurrently, in batches of one.
 */
export class StatementBatchSize {
  readonly #clock: Clock;
  readonly #max: number;
  #batchMs = 0;
  #singleMs = 0;
  #pausedUntilMs = Number.NEGATIVE_INFINITY;

  constructor(max: number, clock: Clock) {
    this.#clock = clock;
    this.#max = max;
  }

  /** The largest batch that is allowed now: the maximum, or 1 while batching is off. */
  get max(): number {
    if (this.#max === 1 || this.#clock.monotonicMs() < this.#pausedUntilMs) return 1;
    return this.#max;
  }

  /** Records how long a batch took. One slow batch has no effect, because its duration is averaged. */
  recordDuration(count: number, ms: number): void {
    if (count === 1) {
      this.#singleMs += (ms - this.#singleMs) / 8;
      return;
    }
    const limitMs = Math.max(FAST_BATCH_MS, MAX_SLOWDOWN * this.#singleMs);
    this.#batchMs += (Math.min(ms, 2 * limitMs) - this.#batchMs) / 8;
    if (this.#batchMs > limitMs) this.#pause(Math.max(MIN_PAUSE_MS, PAUSE_FACTOR * this.#batchMs));
  }

  /** Turns batching off for a while after a lock conflict. */
  recordContention(): void {
    this.#pause(CONTENTION_PAUSE_MS);
  }

  #pause(ms: number): void {
    this.#batchMs = 0;
    this.#pausedUntilMs = this.#clock.monotonicMs() + ms;
  }
}

/** Half of the default prefetch of a consumer, so that one batch fills up while another commits. */
export function maxBatchSize(concurrency: number): number {
  return Math.min(MAX_STATEMENTS, 2 * concurrency);
}
