import type { Signals } from "./signal.ts";
import { after } from "./timers.ts";

export interface WaitForSignal {
  /** Only a signal whose detail passes counts. Default: any. */
  readonly where?: (detail: unknown) => boolean;
  /** How long to wait before the promise rejects. Default 10 000. */
  readonly timeoutMs?: number;
}

interface Waiter {
  readonly name: string;
  readonly accepts: (detail: unknown) => boolean;
  readonly take: (detail: unknown) => void;
}

/** Signals a test can wait for. Each emitted signal satisfies one wait, also one that comes later. */
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

  /** How often `name` was emitted so far. */
  count(name: Name): number {
    return this.#counts.get(name) ?? 0;
  }

  /** Resolves with the detail of the first matching signal nobody has waited for yet. */
  waitFor(name: Name, options: WaitForSignal = {}): Promise<unknown> {
    const accepts = options.where ?? (() => true);
    const index = this.#unclaimed.findIndex((signal) => signal.name === name && accepts(signal.detail));
    if (index >= 0) return Promise.resolve(this.#unclaimed.splice(index, 1)[0]?.detail);
    return this.#next(name, accepts, options.timeoutMs ?? 10_000);
  }

  /** Forgets what was emitted and not waited for. */
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
