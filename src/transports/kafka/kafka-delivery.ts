import type { Message } from "../../message/index.ts";
import type { DeadLetterNote, Delivery, RetryOptions } from "../../transport/index.ts";

export interface DeliveryParts {
  readonly message: Message;
  readonly flaw?: Error;
  readonly attempt: number;
  readonly orderKey: string | null;
}

export interface DeliveryCallbacks {
  /** It is out of the member's hands; `done` if it need not come back. */
  readonly ended: (delivery: KafkaDelivery, how: "done" | "released" | "lost") => void;
  /** Confirmed copies elsewhere; reject when nothing was confirmed. */
  readonly copyForRetry: (options: RetryOptions) => Promise<void>;
  readonly copyForDead: (note: DeadLetterNote) => Promise<void>;
}

/** One record in a handler's hands. Settled once; a failed copy leaves it open, to be settled again. */
export class KafkaDelivery implements Delivery {
  readonly message: Message;
  readonly flaw?: Error;
  readonly attempt: number;
  readonly orderKey: string | null;
  readonly #lost = new AbortController();
  readonly #callbacks: DeliveryCallbacks;
  #state: "open" | "settling" | "settled" = "open";

  constructor(parts: DeliveryParts, ends: DeliveryCallbacks) {
    this.message = parts.message;
    if (parts.flaw !== undefined) this.flaw = parts.flaw;
    this.attempt = parts.attempt;
    this.orderKey = parts.orderKey;
    this.#callbacks = ends;
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

  /** Its partition went to another member, or may have: nothing can be settled any more. */
  abandon(): void {
    if (this.#state === "settled") return;
    this.#state = "settled";
    this.#callbacks.ended(this, "lost");
    this.#lost.abort();
  }

  #settle(how: "done" | "released"): void {
    if (this.#state !== "open") return;
    this.#state = "settled";
    this.#callbacks.ended(this, how);
  }

  async #copyThenSettle(copy: () => Promise<void>): Promise<void> {
    if (this.#state !== "open") return;
    this.#state = "settling";
    try {
      await copy();
    } catch (error) {
      // Lost meanwhile: its new owner settles it, and nobody here need know.
      if (this.#state !== "settling") return;
      this.#state = "open";
      throw error;
    }
    if (this.#state !== "settling") return;
    this.#state = "open";
    this.#settle("done");
  }
}
