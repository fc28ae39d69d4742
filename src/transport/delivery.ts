import type { Message } from "../message/index.ts";
import type { Param, Statement } from "../storage/index.ts";

/** One copy of a message for one consumer group. It is settled once; later calls have no effect. */
export interface Delivery {
  readonly message: Message;
  /** Why the received bytes are not a valid message. `message` then holds the parts that could be read. */
  readonly flaw?: Error;
  /** 1 for the first delivery, plus one for each retry that counts as an attempt. */
  readonly attempt: number;
  /** The stream whose order must be kept, or null if there is no order to keep. */
  readonly orderKey: string | null;
  /** Aborted when another member of the group took over the delivery. Do not commit or settle anything after that. */
  readonly signal: AbortSignal;
  /** Acknowledges the delivery. Call it after the effect has committed. */
  ack(): Promise<void>;
  /**
   * Only for a transport in the same database: a statement that acknowledges inside the effect's transaction. If the
   * delivery is gone, because another member took it over, it fails the transaction (division_by_zero).
   */
  readonly ackWith?: AckWith;
  /** Called after a transaction that ran `ackWith` has committed. */
  readonly confirmAck?: () => void;
  /** Redelivers after the delay. If the transport orders retries, later messages of the key stay behind it. */
  retry(options: RetryOptions): Promise<void>;
  /**
   * Returns the delivery unchanged and without counting an attempt, because an earlier message of its key is retried
   * first.
   */
  release(): Promise<void>;
  /**
   * Only for brokers with a dead-letter queue: copies the message there, body unchanged and note in the headers, and
   * then acknowledges it unless it was acknowledged before. The dead letter in PostgreSQL is committed first.
   */
  deadLetter?(note: DeadLetterNote): Promise<void>;
}

/** A statement that acknowledges a delivery, run by the handler's transaction. */
export interface AckWith {
  readonly statement: Statement;
  readonly params: readonly Param[];
  /**
   * Acknowledges several deliveries in one statement, or fails for all of them. Each parameter is the array of the
   * values that `statement` takes at that position, as one array literal.
   */
  readonly together?: Statement;
}

/** Headers of a dead-lettered message at the broker. The names are sent as they are. */
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
  /** False if the failure was not caused by the message: the attempt is not counted. */
  readonly charged: boolean;
  readonly error: string;
}
