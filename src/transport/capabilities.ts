/** What a transport can do; the conformance suite proves each claim and skips, with the reason, what is not claimed. */
export interface Capabilities {
  /** Order per key is kept among competing consumers and through retries. */
  readonly ordersByKey: boolean;
  /** When one message of a key fails in a batch, every later one of that key fails too, so a batch may hold several. */
  readonly failsLaterOfKey: boolean;
  /** Redelivers after a delay by itself. */
  readonly delaysRedelivery: boolean;
  /** A message without a subscriber is kept for the first one instead of being lost. */
  readonly keepsUnrouted: boolean;
  /** The largest message it takes, in bytes of data. */
  readonly maxBytes: number;
}
