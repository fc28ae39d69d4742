import type { Message } from "../message/index.ts";
import type { Param, Statement } from "../storage/index.ts";

/** One copy of a message on its way to one consumer group. It is settled once; later calls change nothing. */
export interface Delivery {
  readonly message: Message;
  /** 1 for the first time, then one more for each charged retry. */
  readonly attempt: number;
  /** Names the stream whose order must be kept, or null where there is none. */
  readonly orderKey: string | null;
  /** Aborted when the delivery was lost to another member: finish nothing, settle nothing. */
  readonly signal: AbortSignal;
  /** Done: after the effect has committed. */
  ack(): Promise<void>;
  /**
   * Where the transport lives in the same database: settles inside the effect's own transaction, with its COMMIT, and
   * fails it (division_by_zero) when the delivery is no longer there: a worker that was stopped for long comes too late.
   */
  readonly ackWith?: { readonly statement: Statement; readonly params: readonly Param[] };
  /** Told when a transaction that held `ackWith` has committed. */
  readonly acked?: () => void;
  /** Comes back after the delay, with its successors of the same key behind it. */
  retry(options: RetryOptions): Promise<void>;
  /** Given back unharmed and uncharged, in its place: a predecessor has to be tried again first. */
  release(): Promise<void>;
}

export interface RetryOptions {
  readonly delayMs: number;
  /** False when the failure was not the message's: the attempt is not counted. */
  readonly charged: boolean;
  readonly error: string;
}
