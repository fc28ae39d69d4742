import { SagaboxError } from "../../errors/index.ts";
import type { LaneRow } from "../../lanes/index.ts";
import type { Message } from "../../message/index.ts";
import type { Statement } from "../../storage/index.ts";
import type { AckWith, Delivery, RetryOptions } from "../../transport/index.ts";

interface DeliveryCallbacks {
  readonly ackInside: Statement;
  readonly ackInsideAll: Statement;
  ack(): Promise<void>;
  retry(options: RetryOptions): Promise<void>;
  onAcked(): void;
  release(): void;
  /** However it was settled: it no longer counts against the prefetch. */
  onClosed(): void;
  isLost(): boolean;
}

/** A row of the queue in a consumer's hands. */
export class QueueDelivery implements Delivery {
  readonly attempt: number;
  readonly orderKey: string | null;
  readonly #row: LaneRow;
  readonly #callbacks: DeliveryCallbacks;
  readonly #abort = new AbortController();
  #settled = false;

  constructor(row: LaneRow, ordered: boolean, ways: DeliveryCallbacks) {
    this.#row = row;
    this.#callbacks = ways;
    this.attempt = row.attempts + 1;
    this.orderKey = ordered ? row.stream : null;
  }

  get message(): Message {
    if (this.#row.message !== null) return this.#row.message;
    if (this.#row.flaw !== undefined) throw this.#row.flaw;
    throw new SagaboxError(
      "ENVELOPE_INVALID",
      `Message ${this.#row.messageId} is no longer in the history, so it cannot be delivered.`,
    );
  }

  get lane(): number {
    return this.#row.lane;
  }

  get signal(): AbortSignal {
    if (this.#callbacks.isLost()) this.#abort.abort();
    return this.#abort.signal;
  }

  async ack(): Promise<void> {
    if (!this.#markSettled()) return;
    await this.#callbacks.ack().finally(() => this.#callbacks.onClosed());
  }

  get ackWith(): AckWith {
    const { lane, seq, messageId } = this.#row;
    const { ackInside, ackInsideAll } = this.#callbacks;
    return { statement: ackInside, params: [lane, String(seq), messageId], together: ackInsideAll };
  }

  readonly confirmAck = (): void => {
    if (!this.#markSettled()) return;
    this.#callbacks.onAcked();
    this.#callbacks.onClosed();
  };

  async retry(options: RetryOptions): Promise<void> {
    if (!this.#markSettled()) return;
    await this.#callbacks.retry(options).finally(() => this.#callbacks.onClosed());
  }

  async release(): Promise<void> {
    if (!this.#markSettled()) return;
    this.#callbacks.release();
    this.#callbacks.onClosed();
  }

  /** Another member has it now. Nobody settles it here any more, so this is the end that gives its place free. */
  abandon(): void {
    this.#abort.abort();
    if (this.#markSettled()) this.#callbacks.onClosed();
  }

  #markSettled(): boolean {
    if (this.#settled) return false;
    this.#settled = true;
    return true;
  }
}
