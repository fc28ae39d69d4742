import type { Message } from "../message/index.ts";
import type { DeadLetterNote, Delivery, RetryOptions } from "../transport/index.ts";

/** A delivery out of the lot. It is the lot's in everything but its death, which the broker hears of too. */
export class ParkedDelivery implements Delivery {
  readonly #inner: Delivery;
  readonly deadLetter: (note: DeadLetterNote) => Promise<void>;

  constructor(inner: Delivery, copy: (message: Message, note: DeadLetterNote) => Promise<void>) {
    this.#inner = inner;
    this.deadLetter = (note) => copy(inner.message, note);
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

  get ackWith(): NonNullable<Delivery["ackWith"]> {
    if (this.#inner.ackWith === undefined) throw new Error("a lot lives in the database of its consumer");
    return this.#inner.ackWith;
  }

  readonly confirmAck = (): void => this.#inner.acked?.();

  ack(): Promise<void> {
    return this.#inner.ack();
  }

  retry(options: RetryOptions): Promise<void> {
    return this.#inner.retry(options);
  }

  release(): Promise<void> {
    return this.#inner.release();
  }
}
