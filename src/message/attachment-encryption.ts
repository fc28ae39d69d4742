/** With what the bytes of an attachment are sealed: a key of one person, and a salt of this attachment alone. */
// A type and not an interface, so that it counts as JSON.
export type EncryptionInfo = {
  readonly keyId: string;
  /** 16 random bytes. */
  readonly salt: string;
  /** How many bytes come out when it is opened; `bytes` of the reference counts what is stored. */
  readonly plainBytes: number;
};

/** Sealed attachments consist of chunks of this many bytes, the last one shorter, each with a tag behind it. */
export const ENCRYPTED_CHUNK_BYTES = 65_536;
export const ENCRYPTION_TAG_BYTES = 16;

const KEY_ID = /^[A-Za-z0-9_-]{22}$/;
/** The one spelling of 16 bytes: the last letter holds two bits only. */
const SALT = /^[A-Za-z0-9_-]{21}[AQgw]$/;

/** How many bytes are stored for so many. Nothing is one chunk too: that there is no more must be sealed as well. */
export function encryptedSize(plainBytes: number): number {
  return plainBytes + ENCRYPTION_TAG_BYTES * Math.max(1, Math.ceil(plainBytes / ENCRYPTED_CHUNK_BYTES));
}

/** The other way round. */
export function decryptedSize(storedBytes: number): number {
  return (
    storedBytes -
    ENCRYPTION_TAG_BYTES * Math.ceil(storedBytes / (ENCRYPTED_CHUNK_BYTES + ENCRYPTION_TAG_BYTES))
  );
}

/** The seal of something of which so many bytes are stored, if the value is one: three fields, each in its only form. */
export function asEncryptionInfo(value: unknown, storedBytes: number): EncryptionInfo | undefined {
  if (typeof value !== "object" || value === null || Object.keys(value).length !== 3) return undefined;
  const { keyId, salt, plainBytes } = value as Record<string, unknown>;
  if (typeof keyId !== "string" || !KEY_ID.test(keyId)) return undefined;
  if (typeof salt !== "string" || !SALT.test(salt)) return undefined;
  if (typeof plainBytes !== "number" || !Number.isSafeInteger(plainBytes) || plainBytes < 0) return undefined;
  return encryptedSize(plainBytes) === storedBytes ? { keyId, salt, plainBytes } : undefined;
}
