import { createHmac, timingSafeEqual } from "node:crypto";
import { SagaboxError } from "../errors/index.ts";
import { randomBytes } from "../runtime/index.ts";
import { decrypt, encrypt, NONCE_BYTES } from "./cipher.ts";
import { readKeyRing, type RingKeys } from "./key-ring-text.ts";
import type { KeyWrapper, WrappedKey } from "./key-wrapper.ts";

const FORMAT = 1;
const PRINT_BYTES = 8;

/** Keys as a service writes them down: each 32 bytes, as bytes or base64. */
export interface KeyRingOptions {
  /** The key that wraps new data keys. */
  readonly current: string;
  /** Every key that may still be needed for reading, by its id. */
  readonly keys: Readonly<Record<string, string | Uint8Array>>;
  /** The key of blind indexes. It cannot be changed without losing who is who. */
  readonly index: string | Uint8Array;
}

/** Keys held by this process itself, from its code, its environment or a file. */
export class KeyRing implements KeyWrapper {
  readonly #read: (unknownId?: string) => RingKeys;

  /** `read` is asked for every use; a key id that it did not know makes it look again. */
  constructor(read: (unknownId?: string) => RingKeys) {
    this.#read = read;
    read();
  }

  get indexKey(): Uint8Array {
    return this.#read().index;
  }

  currentKeyId(): string {
    return this.#read().current;
  }

  // oxlint-disable-next-line typescript/require-await -- the port is asynchronous, for services that are far away
  async wrap(dataKey: Uint8Array, context: string): Promise<WrappedKey> {
    const { current } = this.#read();
    const key = this.#key(current);
    const nonce = randomBytes(NONCE_BYTES);
    const sealed = encrypt({ key, nonce, bound: bindingText(current, context) }, dataKey);
    return {
      keyId: current,
      wrapped: Buffer.concat([Buffer.from([FORMAT]), fingerprint(key), nonce, sealed]),
    };
  }

  // oxlint-disable-next-line typescript/require-await
  async unwrap({ keyId, wrapped }: WrappedKey, context: string): Promise<Uint8Array | undefined> {
    const key = this.#key(keyId);
    if (wrapped[0] !== FORMAT || wrapped.length < 1 + PRINT_BYTES + NONCE_BYTES) return undefined;
    const print = wrapped.subarray(1, 1 + PRINT_BYTES);
    if (!timingSafeEqual(print, fingerprint(key))) throw otherKey(keyId);
    const nonce = wrapped.subarray(1 + PRINT_BYTES, 1 + PRINT_BYTES + NONCE_BYTES);
    const sealed = wrapped.subarray(1 + PRINT_BYTES + NONCE_BYTES);
    return decrypt({ key, nonce, bound: bindingText(keyId, context) }, sealed);
  }

  #key(id: string): Uint8Array {
    const key = this.#read().keys.get(id) ?? this.#read(id).keys.get(id);
    if (key !== undefined) return key;
    throw new SagaboxError(
      "PRIVACY_KEYS_UNAVAILABLE",
      `The key ring of this process has no key ${JSON.stringify(id)}. Add it to the ring; old keys must stay until every data key is rewrapped.`,
    );
  }
}

/** A ring from keys in hand. All that is wrong with them is said at once, and never what they are. */
export function keyRing(options: KeyRingOptions): KeyRing {
  const keys = readKeyRing(options);
  return new KeyRing(() => keys);
}

function bindingText(keyId: string, context: string): string {
  return JSON.stringify(["sagabox.data-key", FORMAT, keyId, context]);
}

// Tells a ring with another key under the same name, which is a mistake in its setup, from a key that was tampered with.
function fingerprint(key: Uint8Array): Uint8Array {
  return createHmac("sha256", key).update("sagabox.key-fingerprint").digest().subarray(0, PRINT_BYTES);
}

function otherKey(id: string): SagaboxError {
  return new SagaboxError(
    "PRIVACY_KEYS_UNAVAILABLE",
    `Key ${JSON.stringify(id)} of this process is another one than that which wrapped the data keys. Give the old key back its name.`,
  );
}
