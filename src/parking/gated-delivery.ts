import type { Message } from "../message/index.ts";
import type { DeadLetterNote, Delivery, RetryOptions } from "../transport/index.ts";

interface Gate {
  park(delivery: GatedDelivery, retry: RetryOptions | undefined): Promise<void>;
  onSettled(delivery: GatedDelivery): void;
  readonly closing: boolean;
}

/** A broker's delivery of a keyed message: what comes back of it comes back through the lot. */
export class GatedDelivery implements Delivery {
  readonly inner: Delivery;
  readonly #gate: Gate;
  readonly deadLetter?: (note: DeadLetterNote) => Promise<void>;
  #isSettled = false;

  constructor(inner: Delivery, gate: Gate) {
    this.inner = inner;
    this.#gate = gate;
    if (inner.deadLetter !== undefined) {
      this.deadLetter = (note) => this.#settle(async () => inner.deadLetter?.(note));
    }
  }

  get message(): Message {
    return this.inner.message;
  }

  get attempt(): number {
    return this.inner.attempt;
  }

  get orderKey(): string | null {
    return this.inner.orderKey;
  }

  get signal(): AbortSignal {
    return this.inner.signal;
  }

  ack(): Promise<void> {
    return this.#settle(() => this.inner.ack());
  }

  retry(options: RetryOptions): Promise<void> {
    return this.#settle(() => this.#gate.park(this, options));
  }

  // A stop gives everything back to the broker, which keeps its order. Otherwise a predecessor has to come first.
  release(): Promise<void> {
    return this.#settle(() => (this.#gate.closing ? this.inner.release() : this.#gate.park(this, undefined)));
  }

  // A failure leaves it unsettled, so that whoever settles may try again.
  async #settle(way: () => Promise<void>): Promise<void> {
    if (this.#isSettled) return;
    await way();
    this.#isSettled = true;
    this.#gate.onSettled(this);
  }
}
