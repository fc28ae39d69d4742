import { createCipheriv, createDecipheriv, hkdfSync } from "node:crypto";

/** Bytes of every key here: AES-256. */
export const KEY_BYTES = 32;
/** Bytes of a nonce, drawn at random for each text. */
export const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** What is encrypted together with, though not part of, the text: opened with anything else, it is refused. */
export interface Encryption {
  readonly key: Uint8Array;
  readonly nonce: Uint8Array;
  readonly bound: string;
}

/** AES-256-GCM: the encrypted bytes and, behind them, their tag. */
export function encrypt({ key, nonce, bound }: Encryption, plain: Uint8Array): Buffer {
  const cipher = createCipheriv("aes-256-gcm", key, nonce, { authTagLength: TAG_BYTES });
  cipher.setAAD(Buffer.from(bound));
  return Buffer.concat([cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
}

/** The bytes that were encrypted, or undefined when a single bit of anything differs. */
export function decrypt({ key, nonce, bound }: Encryption, sealed: Uint8Array): Buffer | undefined {
  if (sealed.length < TAG_BYTES || nonce.length !== NONCE_BYTES) return undefined;
  const end = sealed.length - TAG_BYTES;
  try {
    const decipher = createDecipheriv("aes-256-gcm", key, nonce, { authTagLength: TAG_BYTES });
    decipher.setAAD(Buffer.from(bound));
    decipher.setAuthTag(sealed.subarray(end));
    return Buffer.concat([decipher.update(sealed.subarray(0, end)), decipher.final()]);
  } catch {
    return undefined;
  }
}

/**
 * A key for one purpose out of a longer-lived one (HKDF with SHA-256). Each message has its own, so that the number of
 * random nonces under one key stays far below what GCM bears, however much is written about a person.
 */
export function deriveKey(key: Uint8Array, salt: string | Uint8Array, purpose: string): Buffer {
  return Buffer.from(hkdfSync("sha256", key, salt, purpose, KEY_BYTES));
}
