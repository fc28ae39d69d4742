/**
 * How the bytes of an attachment are encrypted: with the key of one data subject and a salt used for this
 * attachment only.
 */
// A type alias, because an interface is not assignable to `Json`.
export type EncryptionInfo = {
  readonly keyId: string;
  /** 16 random bytes. */
  readonly salt: string;
  /** Size after decryption, in bytes. `bytes` of the reference is the stored size. */
  readonly plainBytes: number;
};

/**
 * Size of an encrypted chunk before its tag, in bytes. Only the last chunk of an attachment may be shorter.
 */
export const ENCRYPTED_CHUNK_BYTES = 65_536;
export const ENCRYPTION_TAG_BYTES = 16;

const KEY_ID = /^[A-Za-z0-9_-]{22}$/;
/** Base64url of 16 bytes. The last character holds two bits only, so it has four possible values. */
const SALT = /^[A-Za-z0-9_-]{21}[AQgw]$/;

/**
 * Returns the stored size in bytes. An empty attachment is stored as one chunk, so that its end is
 * authenticated too.
 */
export function encryptedSize(plainBytes: number): number {
  return plainBytes + ENCRYPTION_TAG_BYTES * Math.max(1, Math.ceil(plainBytes / ENCRYPTED_CHUNK_BYTES));
}

/** Returns the size before encryption, in bytes, of an attachment with this stored size. */
export function decryptedSize(storedBytes: number): number {
  return (
    storedBytes -
    ENCRYPTION_TAG_BYTES * Math.ceil(storedBytes / (ENCRYPTED_CHUNK_BYTES + ENCRYPTION_TAG_BYTES))
  );
}

/**
 * Returns the value if it describes the encryption of an attachment with this stored size, else undefined.
 * Other fields or spellings are refused.
 */
export function asEncryptionInfo(value: unknown, storedBytes: number): EncryptionInfo | undefined {
  if (typeof value !== "object" || value === null || Object.keys(value).length !== 3) return undefined;
  const { keyId, salt, plainBytes } = value as Record<string, unknown>;
  if (typeof keyId !== "string" || !KEY_ID.test(keyId)) return undefined;
  if (typeof salt !== "string" || !SALT.test(salt)) return undefined;
  if (typeof plainBytes !== "number" || !Number.isSafeInteger(plainBytes) || plainBytes < 0) return undefined;
  return encryptedSize(plainBytes) === storedBytes ? { keyId, salt, plainBytes } : undefined;
}
