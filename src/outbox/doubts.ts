interface Doubt {
  readonly failures: number;
  /** On the monotonic clock. */
  readonly lastMs: number;
  /** It failed by itself although its broker answered others. */
  readonly guilty: boolean;
}

/** More are not remembered; who is forgotten begins anew. */
const MOST = 5_000;

/**
 * Messages that failed and got no answer. That is the broker's failure until proven otherwise; but a message can be what
 * ends the connection, and then everything that travels with it fails too.
 */
export class Doubts {
  readonly #doubts = new Map<string, Doubt>();

  get isEmpty(): boolean {
    return this.#doubts.size === 0;
  }

  failed(id: string, nowMs: number, guilty = this.isGuilty(id)): void {
    const failures = this.failures(id) + 1;
    this.#doubts.delete(id); // the one that failed last is forgotten last
    this.#doubts.set(id, { failures, lastMs: nowMs, guilty });
    const [oldest] = this.#doubts.keys();
    if (this.#doubts.size > MOST && oldest !== undefined) this.#doubts.delete(oldest);
  }

  answered(id: string): void {
    this.#doubts.delete(id);
  }

  failures(id: string): number {
    return this.#doubts.get(id)?.failures ?? 0;
  }

  isGuilty(id: string): boolean {
    return this.#doubts.get(id)?.guilty === true;
  }

  /** When it failed last, or undefined if it has not. */
  lastMs(id: string): number | undefined {
    return this.#doubts.get(id)?.lastMs;
  }
}
