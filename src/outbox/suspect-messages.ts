interface SuspectMessage {
  readonly failures: number;
  /** On the monotonic clock. */
  readonly lastMs: number;
  /** It failed by itself although its broker answered others. */
  readonly guilty: boolean;
}

/** More are not remembered; who is forgotten begins anew. */
const MAX_SUSPECTS = 5_000;

/**
 * Messages that failed and got no answer. That is the broker's failure until proven otherwise; but a message can be what
 * ends the connection, and then everything that travels with it fails too.
 */
export class SuspectMessages {
  readonly #suspects = new Map<string, SuspectMessage>();

  get isEmpty(): boolean {
    return this.#suspects.size === 0;
  }

  recordFailure(id: string, nowMs: number, guilty = this.isConfirmed(id)): void {
    const failures = this.failureCount(id) + 1;
    this.#suspects.delete(id); // the one that failed last is forgotten last
    this.#suspects.set(id, { failures, lastMs: nowMs, guilty });
    const [oldest] = this.#suspects.keys();
    if (this.#suspects.size > MAX_SUSPECTS && oldest !== undefined) this.#suspects.delete(oldest);
  }

  clear(id: string): void {
    this.#suspects.delete(id);
  }

  failureCount(id: string): number {
    return this.#suspects.get(id)?.failures ?? 0;
  }

  isConfirmed(id: string): boolean {
    return this.#suspects.get(id)?.guilty === true;
  }

  /** When it failed last, or undefined if it has not. */
  lastMs(id: string): number | undefined {
    return this.#suspects.get(id)?.lastMs;
  }
}
