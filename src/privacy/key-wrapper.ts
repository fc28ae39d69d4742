/** A data key as it lies in the table: encrypted by a key that never does. */
export interface WrappedKey {
  /** The key that wrapped it. */
  readonly keyId: string;
  readonly wrapped: Uint8Array;
}

/**
 * Whoever holds the keys that wrap the data keys: a key ring of our own, or a key management service. What it throws
 * counts as an outage, for which no message is charged. `context` is bound to the wrapped key and never secret: give it
 * to the service as encryption context, so that a key moved to another row cannot be unwrapped.
 */
export interface KeyWrapper {
  /** The key that wraps new data keys; asked again by every rewrap. */
  currentKeyId(): string | Promise<string>;
  wrap(dataKey: Uint8Array, context: string): Promise<WrappedKey>;
  /** Undefined when the wrapped key is not genuine: changed, or wrapped for another context. */
  unwrap(wrapped: WrappedKey, context: string): Promise<Uint8Array | undefined>;
}
