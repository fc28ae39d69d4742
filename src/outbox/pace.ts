/**
 * When the relay looks again. Idle, it looks less and less often, up to the poll interval. Under load it lingers for a
 * few milliseconds before the next read: an eager relay takes tiny batches and eats the writers' processor time.
 */
export class Pace {
  readonly #pollMs: number;
  readonly #batchSize: number;
  #idleMs = FIRST_POLL_MS;
  #lingerMs = 0;

  constructor(options: { readonly pollMs: number; readonly batchSize: number }) {
    this.#pollMs = options.pollMs;
    this.#batchSize = options.batchSize;
  }

  /** A read found this many; returns how long to linger before the next one. */
  found(count: number): number {
    this.#idleMs = FIRST_POLL_MS;
    if (count <= 2 || count >= this.#batchSize / 2) this.#lingerMs = Math.floor(this.#lingerMs / 2);
    else this.#lingerMs = Math.min(LONGEST_LINGER_MS, this.#lingerMs + 1);
    return this.#lingerMs;
  }

  /** A look everywhere found nothing; returns how long to wait before the next one. */
  foundNothing(): number {
    const waitMs = this.#idleMs;
    this.#idleMs = Math.min(this.#pollMs, this.#idleMs * 2);
    return waitMs;
  }

  /** Somebody said that something may be coming: a window of short waits begins. */
  hinted(): void {
    this.#idleMs = Math.min(this.#idleMs, FIRST_POLL_MS);
  }
}

const FIRST_POLL_MS = 25;
const LONGEST_LINGER_MS = 20;
