import { decodeJson, encodeJson, isSealed, type Json, type Sealed } from "../message/index.ts";
import { randomBytes } from "../runtime/index.ts";
import { decrypt, deriveKey, encrypt, NONCE_BYTES } from "./cipher.ts";
import type { DataKey } from "./key-cache.ts";
import { sealBroken } from "./seal-broken.ts";
import { FORMAT, formatToken, parseToken } from "./sealed-token.ts";

/** What a sealed value is part of. It can be opened there and nowhere else. */
export interface Binding {
  /** Of what sort: a message, a saga, an answer. */
  readonly purpose: string;
  /** Which one. */
  readonly id: string;
}

const LARGEST_BYTES = 64 * 1_048_576;

/** Seals and opens the values of one message, or of one saga, under the key of one person. */
export class Sealer {
  readonly #keyId: string;
  readonly #key: Uint8Array;
  readonly #binding: Binding;

  constructor(key: DataKey, binding: Binding) {
    this.#keyId = key.keyId;
    this.#key = deriveKey(key.bytes, binding.id, `sagabox.${binding.purpose}.${FORMAT}`);
    this.#binding = binding;
  }

  /** `place` is what tells the value from the others of its message. */
  seal(value: unknown, place: unknown): Sealed {
    return this.sealText(encodeJson(value, { maxBytes: LARGEST_BYTES }), place);
  }

  open(value: unknown, place: unknown): Json {
    return decodeJson(this.openText(value, place), { maxBytes: LARGEST_BYTES });
  }

  sealText(text: string, place: unknown): Sealed {
    const nonce = randomBytes(NONCE_BYTES);
    const bytes = encrypt({ key: this.#key, nonce, bound: this.#bound(place) }, Buffer.from(text));
    return { $sealed: formatToken({ keyId: this.#keyId, nonce, bytes }) };
  }

  openText(value: unknown, place: unknown): string {
    const token = isSealed(value) ? parseToken(value.$sealed) : undefined;
    if (token?.keyId !== this.#keyId) throw sealBroken();
    const plain = decrypt({ key: this.#key, nonce: token.nonce, bound: this.#bound(place) }, token.bytes);
    if (plain === undefined) throw sealBroken();
    return plain.toString("utf8");
  }

  #bound(place: unknown): string {
    const { purpose, id } = this.#binding;
    return JSON.stringify(["sagabox", FORMAT, purpose, id, place, this.#keyId]);
  }
}
