import { createCipheriv, createDecipheriv, hkdfSync } from "node:crypto";
import { SagaboxError } from "../errors/index.ts";

/** Length of a key in bytes (AES-256). */
export const KEY_BYTES = 32;
/** Length of a nonce in bytes. */
export const NONCE_BYTES = 12;
const TAG_BYTES = 16;

export interface Encryption {
  readonly key: Uint8Array;
  readonly nonce: Uint8Array;
  /** Associated data: authenticated but not encrypted. Decryption with other data fails. */
  readonly bound: string;
}

/** Encrypts with AES-256-GCM. Returns the ciphertext followed by the authentication tag. */
export function encrypt({ key, nonce, bound }: Encryption, plain: Uint8Array): Buffer {
  const cipher = createCipheriv("aes-256-gcm", key, nonce, { authTagLength: TAG_BYTES });
  cipher.setAAD(Buffer.from(bound));
  return Buffer.concat([cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
}

/** Decrypts and authenticates. Returns undefined if the key, nonce, associated data or ciphertext do not match. */
export function decrypt({ key, nonce, bound }: Encryption, encrypted: Uint8Array): Buffer | undefined {
  if (encrypted.length < TAG_BYTES || nonce.length !== NONCE_BYTES) return undefined;
  const end = encrypted.length - TAG_BYTES;
  try {
    const decipher = createDecipheriv("aes-256-gcm", key, nonce, { authTagLength: TAG_BYTES });
    decipher.setAAD(Buffer.from(bound));
    decipher.setAuthTag(encrypted.subarray(end));
    return Buffer.concat([decipher.update(encrypted.subarray(0, end)), decipher.final()]);
  } catch {
    return undefined;
  }
}

/**
 * Derives a key for one purpose from a longer-lived key (HKDF with SHA-256). Each message gets its own key, so that the
 * number of random nonces per key stays far below the limit of GCM.
 */
export function deriveKey(key: Uint8Array, salt: string | Uint8Array, purpose: string): Buffer {
  return Buffer.from(hkdfSync("sha256", key, salt, purpose, KEY_BYTES));
}

/** The error for a value that cannot be decrypted. It does not reveal which check failed. */
export function decryptionFailed(): SagaboxError<"PRIVACY_SEAL_BROKEN"> {
  return new SagaboxError(
    "PRIVACY_SEAL_BROKEN",
    "An encrypted value cannot be decrypted: the value, or the message or saga it belongs to, was changed.",
  );
}
