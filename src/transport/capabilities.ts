/**
 * What a transport can do. The conformance suite tests each claim, and skips the cases of claims that are not made.
 */
export interface Capabilities {
  /** Keeps order per key among the competing members of a consumer group. */
  readonly ordersByKey: boolean;
  /**
   * Keeps order per key through retries too. If false, the bus parks the failed messages of a key in PostgreSQL, in
   * order.
   */
  readonly ordersRetries: boolean;
  /**
   * When one message of a key fails in a batch, every later one of that key fails too. A batch may then hold several
   * messages of a key.
   */
  readonly failsLaterOfKey: boolean;
  /** Can redeliver a message after a delay. */
  readonly delaysRedelivery: boolean;
  /** Keeps a message without a subscriber for the first group that subscribes, instead of dropping it. */
  readonly keepsUnrouted: boolean;
  /** Rejects a message that no queue accepts, instead of dropping it. */
  readonly rejectsUnrouted: boolean;
  /** A new group can read messages that were published before it subscribed. */
  readonly replays: boolean;
  /**
   * A new group can start at a given time. A transport with this claim but without `replays` can do so for streams
   * only.
   */
  readonly replaysFromTime: boolean;
  /** The largest message the transport accepts, in bytes of data. */
  readonly maxBytes: number;
}
