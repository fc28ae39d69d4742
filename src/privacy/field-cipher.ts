import { decodeJson, encodeJson, isEncrypted, type Json, type Encrypted } from "../message/index.ts";
import { randomBytes } from "../runtime/index.ts";
import { decrypt, deriveKey, encrypt, NONCE_BYTES } from "./cipher.ts";
import type { DataKey } from "./key-cache.ts";
import { decryptionFailed } from "./decryption-failed.ts";
import { FORMAT, formatToken, parseToken } from "./encrypted-token.ts";

/** What a sealed value is part of. It can be opened there and nowhere else. */
export interface Binding {
  /** Of what sort: a message, a saga, an answer. */
  readonly purpose: string;
  /** Which one. */
  readonly id: string;
}

const MAX_BYTES = 64 * 1_048_576;

/** Seals and opens the values of one message, or of one saga, under the key of one person. */
export class FieldCipher {
  readonly #keyId: string;
  readonly #key: Uint8Array;
  readonly #binding: Binding;

  constructor(key: DataKey, binding: Binding) {
    this.#keyId = key.keyId;
    this.#key = deriveKey(key.bytes, binding.id, `sagabox.${binding.purpose}.${FORMAT}`);
    this.#binding = binding;
  }

  /** `place` is what tells the value from the others of its message. */
  encrypt(value: unknown, place: unknown): Encrypted {
    return this.encryptText(encodeJson(value, { maxBytes: MAX_BYTES }), place);
  }

  decrypt(value: unknown, place: unknown): Json {
    return decodeJson(this.decryptText(value, place), { maxBytes: MAX_BYTES });
  }

  encryptText(text: string, place: unknown): Encrypted {
    const nonce = randomBytes(NONCE_BYTES);
    const bytes = encrypt({ key: this.#key, nonce, bound: this.#bindTo(place) }, Buffer.from(text));
    return { $sealed: formatToken({ keyId: this.#keyId, nonce, bytes }) };
  }

  decryptText(value: unknown, place: unknown): string {
    const token = isEncrypted(value) ? parseToken(value.$sealed) : undefined;
    if (token?.keyId !== this.#keyId) throw decryptionFailed();
    const plain = decrypt({ key: this.#key, nonce: token.nonce, bound: this.#bindTo(place) }, token.bytes);
    if (plain === undefined) throw decryptionFailed();
    return plain.toString("utf8");
  }

  #bindTo(place: unknown): string {
    const { purpose, id } = this.#binding;
    return JSON.stringify(["sagabox", FORMAT, purpose, id, place, this.#keyId]);
  }
}
