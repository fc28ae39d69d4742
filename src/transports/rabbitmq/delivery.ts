import type { Message } from "../../message/index.ts";
import type { DeadLetterNote, Delivery, RetryOptions } from "../../transport/index.ts";

export interface DeliveryCallbacks {
  /** Tells the broker that it is done. */
  ack(): void;
  /** Puts a copy where it waits, and returns when the broker has it. */
  retry(options: RetryOptions): Promise<void>;
  release(): Promise<void>;
  deadLetter(note: DeadLetterNote): Promise<void>;
  /** However it ended: it no longer counts against the prefetch. */
  onClosed(): void;
}

interface DeliveryContents {
  readonly message: Message;
  readonly flaw?: Error;
  readonly attempt: number;
  readonly orderKey: string | null;
}

/** A message in a consumer's hands. An end that failed may be tried again; one that was reached is final. */
export class RabbitDelivery implements Delivery {
  readonly message: Message;
  readonly flaw?: Error;
  readonly attempt: number;
  readonly orderKey: string | null;
  readonly #callbacks: DeliveryCallbacks;
  readonly #lost = new AbortController();
  #state: "open" | "settling" | "settled" = "open";

  constructor(contents: DeliveryContents, ways: DeliveryCallbacks) {
    this.message = contents.message;
    if (contents.flaw !== undefined) this.flaw = contents.flaw;
    this.attempt = contents.attempt;
    this.orderKey = contents.orderKey;
    this.#callbacks = ways;
  }

  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  ack(): Promise<void> {
    return this.#settle(async () => this.#callbacks.ack());
  }

  retry(options: RetryOptions): Promise<void> {
    return this.#settle(async () => {
      await this.#callbacks.retry(options);
      this.#callbacks.ack();
    });
  }

  release(): Promise<void> {
    return this.#settle(() => this.#callbacks.release());
  }

  deadLetter(note: DeadLetterNote): Promise<void> {
    return this.#settle(async () => {
      await this.#callbacks.deadLetter(note);
      this.#callbacks.ack();
    });
  }

  /** The broker gives it to somebody else: nothing said here counts any more. */
  abandon(): void {
    if (this.#state === "settled") return;
    const settling = this.#state === "settling";
    this.#state = "settled";
    this.#lost.abort();
    if (!settling) this.#callbacks.onClosed();
  }

  async #settle(end: () => Promise<void>): Promise<void> {
    if (this.#state !== "open") return;
    this.#state = "settling";
    try {
      await end();
    } catch (error) {
      if (!this.#lost.signal.aborted) {
        this.#state = "open";
        throw error;
      }
    }
    this.#state = "settled";
    this.#callbacks.onClosed();
  }
}
