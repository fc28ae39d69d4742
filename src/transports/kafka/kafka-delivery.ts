import type { Message } from "../../message/index.ts";
import type { DeadLetterNote, Delivery, RetryOptions } from "../../transport/index.ts";

export interface DeliveryParts {
  readonly message: Message;
  readonly flaw?: Error;
  readonly attempt: number;
  readonly orderKey: string | null;
}

export interface DeliveryCallbacks {
  /** Called once when the delivery is no longer in flight; a "released" record is delivered again. */
  readonly onSettled: (delivery: KafkaDelivery, how: "done" | "released" | "lost") => void;
  /** Resolves when the broker has confirmed the copy, and rejects otherwise. */
  readonly copyForRetry: (options: RetryOptions) => Promise<void>;
  readonly copyForDead: (note: DeadLetterNote) => Promise<void>;
}

/** One record in flight to a handler. It is settled once; if a copy fails, it stays open and can be settled again. */
export class KafkaDelivery implements Delivery {
  readonly message: Message;
  readonly flaw?: Error;
  readonly attempt: number;
  readonly orderKey: string | null;
  readonly #lost = new AbortController();
  readonly #callbacks: DeliveryCallbacks;
  #state: "open" | "settling" | "settled" = "open";

  constructor(parts: DeliveryParts, callbacks: DeliveryCallbacks) {
    this.message = parts.message;
    if (parts.flaw !== undefined) this.flaw = parts.flaw;
    this.attempt = parts.attempt;
    this.orderKey = parts.orderKey;
    this.#callbacks = callbacks;
  }

  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  async ack(): Promise<void> {
    this.#settle("done");
  }

  async release(): Promise<void> {
    this.#settle("released");
  }

  retry(options: RetryOptions): Promise<void> {
    return this.#copyThenSettle(() => this.#callbacks.copyForRetry(options));
  }

  deadLetter(note: DeadLetterNote): Promise<void> {
    return this.#copyThenSettle(() => this.#callbacks.copyForDead(note));
  }

  /** Aborts the delivery because its partition has, or may have, moved. Later calls that settle it do nothing. */
  abandon(): void {
    if (this.#state === "settled") return;
    this.#state = "settled";
    this.#callbacks.onSettled(this, "lost");
    this.#lost.abort();
  }

  #settle(how: "done" | "released"): void {
    if (this.#state !== "open") return;
    this.#state = "settled";
    this.#callbacks.onSettled(this, how);
  }

  async #copyThenSettle(copy: () => Promise<void>): Promise<void> {
    if (this.#state !== "open") return;
    this.#state = "settling";
    try {
      await copy();
    } catch (error) {
      // The partition was lost meanwhile, and its new owner settles the record. The failed copy does not matter.
      if (this.#state !== "settling") return;
      this.#state = "open";
      throw error;
    }
    if (this.#state !== "settling") return;
    this.#state = "open";
    this.#settle("done");
  }
}
