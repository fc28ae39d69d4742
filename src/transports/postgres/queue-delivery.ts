import { SagaboxError } from "../../errors/index.ts";
import type { LaneRow } from "../../lanes/index.ts";
import type { Message } from "../../message/index.ts";
import type { Statement } from "../../storage/index.ts";
import type { AckWith, Delivery, RetryOptions } from "../../transport/index.ts";

interface Ways {
  readonly ackInside: Statement;
  readonly ackInsideAll: Statement;
  ack(): Promise<void>;
  retry(options: RetryOptions): Promise<void>;
  acked(): void;
  release(): void;
  /** However it was settled: it no longer counts against the prefetch. */
  closed(): void;
  lost(): boolean;
}

/** A row of the queue in a consumer's hands. */
export class QueueDelivery implements Delivery {
  readonly attempt: number;
  readonly orderKey: string | null;
  readonly #row: LaneRow;
  readonly #ways: Ways;
  readonly #abort = new AbortController();
  #settled = false;

  constructor(row: LaneRow, ordered: boolean, ways: Ways) {
    this.#row = row;
    this.#ways = ways;
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
    if (this.#ways.lost()) this.#abort.abort();
    return this.#abort.signal;
  }

  async ack(): Promise<void> {
    if (!this.#settle()) return;
    await this.#ways.ack().finally(() => this.#ways.closed());
  }

  get ackWith(): AckWith {
    const { lane, seq, messageId } = this.#row;
    const { ackInside, ackInsideAll } = this.#ways;
    return { statement: ackInside, params: [lane, String(seq), messageId], together: ackInsideAll };
  }

  readonly acked = (): void => {
    if (!this.#settle()) return;
    this.#ways.acked();
    this.#ways.closed();
  };

  async retry(options: RetryOptions): Promise<void> {
    if (!this.#settle()) return;
    await this.#ways.retry(options).finally(() => this.#ways.closed());
  }

  async release(): Promise<void> {
    if (!this.#settle()) return;
    this.#ways.release();
    this.#ways.closed();
  }

  /** Another member has it now. Nobody settles it here any more, so this is the end that gives its place free. */
  lose(): void {
    this.#abort.abort();
    if (this.#settle()) this.#ways.closed();
  }

  #settle(): boolean {
    if (this.#settled) return false;
    this.#settled = true;
    return true;
  }
}
