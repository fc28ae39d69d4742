import type { Message } from "../../message/index.ts";
import type { DeadLetterNote, Delivery, RetryOptions } from "../../transport/index.ts";

export interface Ways {
  /** Tells the broker that it is done. */
  ack(): void;
  /** Puts a copy where it waits, and returns when the broker has it. */
  again(options: RetryOptions): Promise<void>;
  giveBack(): Promise<void>;
  bury(note: DeadLetterNote): Promise<void>;
  /** However it ended: it no longer counts against the prefetch. */
  closed(): void;
}

interface Contents {
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
  readonly #ways: Ways;
  readonly #lost = new AbortController();
  #state: "open" | "settling" | "settled" = "open";

  constructor(contents: Contents, ways: Ways) {
    this.message = contents.message;
    if (contents.flaw !== undefined) this.flaw = contents.flaw;
    this.attempt = contents.attempt;
    this.orderKey = contents.orderKey;
    this.#ways = ways;
  }

  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  ack(): Promise<void> {
    return this.#settle(async () => this.#ways.ack());
  }

  retry(options: RetryOptions): Promise<void> {
    return this.#settle(async () => {
      await this.#ways.again(options);
      this.#ways.ack();
    });
  }

  release(): Promise<void> {
    return this.#settle(() => this.#ways.giveBack());
  }

  deadLetter(note: DeadLetterNote): Promise<void> {
    return this.#settle(async () => {
      await this.#ways.bury(note);
      this.#ways.ack();
    });
  }

  /** The broker gives it to somebody else: nothing said here counts any more. */
  lose(): void {
    if (this.#state === "settled") return;
    const settling = this.#state === "settling";
    this.#state = "settled";
    this.#lost.abort();
    if (!settling) this.#ways.closed();
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
    this.#ways.closed();
  }
}
