import { after } from "./time.ts";

/**
 * Named moments that a room announces ("batch.published", "lane.leased"). Production ignores them; a test
 * passes `TestSignals` and waits for a moment instead of sleeping.
 */
export interface Signals<Name extends string = string> {
  emit(name: Name, detail?: unknown): void;
}

export const silentSignals: Signals = Object.freeze({ emit: () => undefined });

export interface WaitForSignal {
  /** Accepts only signals whose detail passes. Default: any. */
  readonly where?: (detail: unknown) => boolean;
  /** The wait in milliseconds after which the promise rejects. Default 10 000. */
  readonly timeoutMs?: number;
}

interface Waiter {
  readonly name: string;
  readonly accepts: (detail: unknown) => boolean;
  readonly take: (detail: unknown) => void;
}

/** Signals that a test can wait for. Each emitted signal satisfies one wait, including a later one. */
export class TestSignals<Name extends string = string> implements Signals<Name> {
  #unclaimed: { readonly name: string; readonly detail: unknown }[] = [];
  readonly #waiters = new Set<Waiter>();
  readonly #counts = new Map<string, number>();

  emit(name: Name, detail?: unknown): void {
    this.#counts.set(name, this.count(name) + 1);
    for (const waiter of this.#waiters) {
      if (waiter.name === name && waiter.accepts(detail)) return waiter.take(detail);
    }
    this.#unclaimed.push({ name, detail });
  }

  /** Counts how often `name` has been emitted. */
  count(name: Name): number {
    return this.#counts.get(name) ?? 0;
  }

  /** Resolves with the detail of the first matching signal that no other wait has taken. */
  waitFor(name: Name, options: WaitForSignal = {}): Promise<unknown> {
    const accepts = options.where ?? (() => true);
    const index = this.#unclaimed.findIndex((signal) => signal.name === name && accepts(signal.detail));
    if (index >= 0) return Promise.resolve(this.#unclaimed.splice(index, 1)[0]?.detail);
    return this.#next(name, accepts, options.timeoutMs ?? 10_000);
  }

  /** Drops signals that were emitted and not waited for. */
  clear(): void {
    this.#unclaimed = [];
  }

  #next(name: Name, accepts: Waiter["accepts"], timeoutMs: number): Promise<unknown> {
    return new Promise((resolve, reject) => {
      const cancel = after(timeoutMs, () => {
        this.#waiters.delete(waiter);
        reject(new Error(`No signal "${name}" within ${timeoutMs} ms; seen: ${this.#describeUnclaimed()}.`));
      });
      const waiter: Waiter = {
        name,
        accepts,
        take: (detail) => {
          cancel();
          this.#waiters.delete(waiter);
          resolve(detail);
        },
      };
      this.#waiters.add(waiter);
    });
  }

  #describeUnclaimed(): string {
    return [...this.#counts].map(([name, count]) => `${name} × ${count}`).join(", ") || "none";
  }
}
