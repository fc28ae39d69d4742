import { decodeJson, encodeJson, type Encrypted, isEncrypted, type Json } from "../message/index.ts";
import { randomBytes } from "../runtime/index.ts";
import { decrypt, decryptionFailed, deriveKey, encrypt, NONCE_BYTES } from "./cipher.ts";
import { FORMAT, formatToken, parseToken } from "./encrypted-format.ts";
import type { DataKey } from "./key-cache.ts";

/** The message, saga or reply that contains an encrypted value. The value cannot be decrypted in another one. */
export interface Binding {
  /** "message", "saga" or "reply". */
  readonly purpose: string;
  readonly id: string;
}

// Limit for the JSON text of one value: 64 MiB.
const MAX_BYTES = 64 * 1_048_576;

/** Encrypts and decrypts the fields of one message, saga or reply with the key of one data subject. */
export class FieldCipher {
  readonly #keyId: string;
  readonly #key: Uint8Array;
  readonly #binding: Binding;

  constructor(key: DataKey, binding: Binding) {
    this.#keyId = key.keyId;
    this.#key = deriveKey(key.bytes, binding.id, `sagabox.${binding.purpose}.${FORMAT}`);
    this.#binding = binding;
  }

  /**
   * Encrypts a value as JSON. `fieldPath` identifies the field within its message, saga or reply. The value cannot be
   * decrypted in another field.
   */
  encrypt(value: unknown, fieldPath: unknown): Encrypted {
    return this.encryptText(encodeJson(value, { maxBytes: MAX_BYTES }), fieldPath);
  }

  /** Decrypts a value from `encrypt`. Throws PRIVACY_SEAL_BROKEN if it was changed or belongs to another key or field. */
  decrypt(value: unknown, fieldPath: unknown): Json {
    return decodeJson(this.decryptText(value, fieldPath), { maxBytes: MAX_BYTES });
  }

  encryptText(text: string, fieldPath: unknown): Encrypted {
    const nonce = randomBytes(NONCE_BYTES);
    const bytes = encrypt(
      { key: this.#key, nonce, bound: this.#formatBinding(fieldPath) },
      Buffer.from(text),
    );
    return { $sealed: formatToken({ keyId: this.#keyId, nonce, bytes }) };
  }

  decryptText(value: unknown, fieldPath: unknown): string {
    const token = isEncrypted(value) ? parseToken(value.$sealed) : undefined;
    if (token?.keyId !== this.#keyId) throw decryptionFailed();
    const plain = decrypt(
      { key: this.#key, nonce: token.nonce, bound: this.#formatBinding(fieldPath) },
      token.bytes,
    );
    if (plain === undefined) throw decryptionFailed();
    return plain.toString("utf8");
  }

  // The additional data that the cipher authenticates, so that the value cannot be moved.
  #formatBinding(fieldPath: unknown): string {
    const { purpose, id } = this.#binding;
    return JSON.stringify(["sagabox", FORMAT, purpose, id, fieldPath, this.#keyId]);
  }
}
