import type { JsMsg } from "@nats-io/jetstream";
import type { Message } from "../../message/index.ts";
import { fromWire, type DeadLetterNote, type Delivery, type RetryOptions } from "../../transport/index.ts";
import { fromNatsHeaders, transportHeaders } from "./header-mapping.ts";

/** A reader that supplies deliveries and keeps track of their messages. */
export interface Source {
  readonly topic: string;
  /** Returns the next message to hand out, if there is one. */
  takeNext(): JsMsg | undefined;
  /** Called when the message is settled and acknowledged. */
  complete(msg: JsMsg): void;
  /** Called when the message is released without counting an attempt. */
  putBack(msg: JsMsg): void;
}

export interface DeliveryParts {
  readonly msg: JsMsg;
  readonly source: Source;
  readonly ordered: boolean;
  readonly maxBytes: number;
  copyToRetry(msg: JsMsg, topic: string, attempt: number, delayMs: number): Promise<void>;
  copyToDeadLetters(msg: JsMsg, note: DeadLetterNote): Promise<void>;
  /** Called exactly once when the delivery is closed, with any outcome. */
  onClosed(delivery: NatsDelivery): void;
}

export class NatsDelivery implements Delivery {
  readonly message: Message;
  readonly flaw?: Error;
  readonly attempt: number;
  readonly orderKey: string | null;
  readonly #parts: DeliveryParts;
  readonly #lost = new AbortController();
  #settling: Promise<void> | undefined;
  #settled = false;

  constructor(parts: DeliveryParts) {
    const { msg, source, ordered, maxBytes } = parts;
    this.#parts = parts;
    const headers = fromNatsHeaders(msg.headers);
    const { topic } = source;
    const { message, flaw } = fromWire({ body: msg.data, headers, topic, key: null, maxBytes });
    this.message = message;
    if (flaw !== undefined) this.flaw = flaw;
    this.attempt = parseAttempt(headers[transportHeaders.attempt]);
    this.orderKey = ordered && message.key !== null ? `${topic}/${message.key}` : null;
  }

  get signal(): AbortSignal {
    return this.#lost.signal;
  }

  get source(): Source {
    return this.#parts.source;
  }

  ack(): Promise<void> {
    return this.#settle(() => Promise.resolve());
  }

  retry({ delayMs, countsAsAttempt }: RetryOptions): Promise<void> {
    const { msg, source } = this.#parts;
    const attempt = this.attempt + (countsAsAttempt ? 1 : 0);
    return this.#settle(() => this.#parts.copyToRetry(msg, source.topic, attempt, delayMs));
  }

  deadLetter(note: DeadLetterNote): Promise<void> {
    return this.#settle(() => this.#parts.copyToDeadLetters(this.#parts.msg, note));
  }

  async release(): Promise<void> {
    await this.#settling?.catch(() => undefined);
    if (this.#settled) return;
    this.#settled = true;
    this.#parts.source.putBack(this.#parts.msg);
    this.#parts.onClosed(this);
  }

  /** Closes the delivery without settling it: another member has the message or will get it. */
  abandon(): void {
    if (this.#settled) return;
    this.#settled = true;
    this.#lost.abort();
    this.#parts.onClosed(this);
  }

  // If writing the copy fails, the delivery stays open and the caller can try again.
  async #settle(first: () => Promise<void>): Promise<void> {
    if (this.#settled) return;
    this.#settling ??= this.#runSettle(first).finally(() => (this.#settling = undefined));
    await this.#settling;
  }

  async #runSettle(first: () => Promise<void>): Promise<void> {
    try {
      await first();
    } catch (error) {
      if (this.#settled) return; // abandoned meanwhile: another member settles the message
      throw error;
    }
    if (this.#settled) return;
    this.#settled = true;
    this.#parts.source.complete(this.#parts.msg);
    this.#parts.onClosed(this);
  }
}

function parseAttempt(header: string | undefined): number {
  const attempt = Number(header ?? "1");
  return Number.isSafeInteger(attempt) && attempt >= 1 ? attempt : 1;
}
