import type { Message } from "../message/index.ts";
import type { Param, Statement } from "../storage/index.ts";

/** One copy of a message on its way to one consumer group. It is settled once; later calls change nothing. */
export interface Delivery {
  readonly message: Message;
  /** Why the bytes that came are no message of ours. `message` then holds what could be made of them. */
  readonly flaw?: Error;
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
  readonly ackWith?: AckWith;
  /** Called after a transaction that ran `ackWith` has committed. */
  readonly confirmAck?: () => void;
  /** Comes back after the delay; with its successors of the same key behind it where the transport orders retries. */
  retry(options: RetryOptions): Promise<void>;
  /** Given back unharmed and uncharged, in its place: a predecessor has to be tried again first. */
  release(): Promise<void>;
  /**
   * Where the broker has a place for the dead: puts the message there, its body unchanged and the note in its headers,
   * and acknowledges it once the broker has confirmed, where that was not done with the letter. The letter in Postgres
   * was committed before.
   */
  deadLetter?(note: DeadLetterNote): Promise<void>;
}

/** An acknowledgement as a statement of whoever handles the message. */
export interface AckWith {
  readonly statement: Statement;
  readonly params: readonly Param[];
  /**
   * Acknowledges several in one go, or fails for all of them: its parameters are those of `statement`, each the list of
   * what all of them have in its place, as one text.
   */
  readonly together?: Statement;
}

/** What is written beside a dead message; the names travel as they are. */
export interface DeadLetterNote {
  readonly error_type: string;
  readonly error_message: string;
  readonly stack_trace: string;
  readonly retry_count: string;
  readonly failed_at: string;
  readonly source_topic: string;
  readonly consumer_group: string;
  readonly original_timestamp: string;
}

export interface RetryOptions {
  readonly delayMs: number;
  /** False when the failure was not the message's: the attempt is not counted. */
  readonly charged: boolean;
  readonly error: string;
}
