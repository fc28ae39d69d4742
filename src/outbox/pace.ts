/**
 * When the relay looks again. Hints say where something is, so it looks everywhere only now and then: less and less
 * often, up to the poll interval, and more often again while that finds what no hint had named. Under load it lingers
 * for a few milliseconds before the next read: an eager relay takes tiny batches and eats the writers' processor time.
 */
export class Pace {
  readonly #pollMs: number;
  readonly #batchSize: number;
  #idleMs = MIN_POLL_MS;
  #lingerMs = 0;

  constructor(options: { readonly pollMs: number; readonly batchSize: number }) {
    this.#pollMs = options.pollMs;
    this.#batchSize = options.batchSize;
  }

  /** A read found this many; returns how long to linger before the next one. */
  recordRead(count: number): number {
    if (count <= 2 || count >= this.#batchSize / 2) this.#lingerMs = Math.floor(this.#lingerMs / 2);
    else this.#lingerMs = Math.min(MAX_LINGER_MS, this.#lingerMs + 1);
    return this.#lingerMs;
  }

  /** It looks everywhere now; returns how long to wait before it does so again. */
  nextPollMs(): number {
    const waitMs = this.#idleMs;
    this.#idleMs = Math.min(this.#pollMs, this.#idleMs * 2);
    return waitMs;
  }

  /** Something may be coming that no hint will name: a window of short waits begins, with this one. */
  restartPolling(): number {
    this.#idleMs = MIN_POLL_MS;
    return this.nextPollMs();
  }
}

const MIN_POLL_MS = 25;
const MAX_LINGER_MS = 20;
