import type { Message } from "../message/index.ts";
import type { DeadLetterNote, Delivery, RetryOptions } from "../transport/index.ts";

/** A delivery that says once when it is out of the consumer's hands, settled or lost. */
export class CountedDelivery implements Delivery {
  readonly #inner: Delivery;
  #left: (() => void) | undefined;
  readonly flaw?: Error;
  readonly deadLetter?: (note: DeadLetterNote) => Promise<void>;
  readonly ackWith?: NonNullable<Delivery["ackWith"]>;
  readonly acked?: () => void;

  constructor(inner: Delivery, left: () => void) {
    this.#inner = inner;
    this.#left = left;
    inner.signal.addEventListener("abort", () => this.#leave(), { once: true });
    if (inner.flaw !== undefined) this.flaw = inner.flaw;
    if (inner.deadLetter !== undefined) {
      this.deadLetter = (note) => this.#then(inner.deadLetter?.(note));
    }
    if (inner.ackWith !== undefined) {
      this.ackWith = inner.ackWith;
      this.acked = () => {
        inner.acked?.();
        this.#leave();
      };
    }
  }

  get message(): Message {
    return this.#inner.message;
  }

  get attempt(): number {
    return this.#inner.attempt;
  }

  get orderKey(): string | null {
    return this.#inner.orderKey;
  }

  get signal(): AbortSignal {
    return this.#inner.signal;
  }

  ack(): Promise<void> {
    return this.#then(this.#inner.ack());
  }

  retry(options: RetryOptions): Promise<void> {
    return this.#then(this.#inner.retry(options));
  }

  release(): Promise<void> {
    return this.#then(this.#inner.release());
  }

  // A failure leaves it unsettled, so that whoever settles may try again.
  async #then(settled: Promise<void> | undefined): Promise<void> {
    await settled;
    this.#leave();
  }

  #leave(): void {
    const left = this.#left;
    this.#left = undefined;
    left?.();
  }
}
