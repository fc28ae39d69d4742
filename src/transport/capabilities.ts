/** What a transport can do; the conformance suite proves each claim and skips, with the reason, what is not claimed. */
export interface Capabilities {
  /** Order per key is kept among competing consumers. */
  readonly ordersByKey: boolean;
  /** ... and through retries. Where it is not, the bus parks the failed messages of a key in Postgres, in order. */
  readonly ordersRetries: boolean;
  /** When one message of a key fails in a batch, every later one of that key fails too, so a batch may hold several. */
  readonly failsLaterOfKey: boolean;
  /** Redelivers after a delay by itself. */
  readonly delaysRedelivery: boolean;
  /** A message without a subscriber is kept for the first one instead of being lost. */
  readonly keepsUnrouted: boolean;
  /** A message that no queue takes is rejected instead of vanishing. */
  readonly rejectsUnrouted: boolean;
  /** A new group can be given what was published before it came. */
  readonly replays: boolean;
  /** ... from a time on. A transport that claims this alone can do it for streams, and for nothing else. */
  readonly replaysFromTime: boolean;
  /** The largest message it takes, in bytes of data. */
  readonly maxBytes: number;
}
