import type { StandardSchemaV1 } from "@standard-schema/spec";

/**
 * A file that belongs to a message: `bus.attach()` returns it, and `context.open()` reads it. It is plain
 * JSON; the bytes are in a store.
 */
// A type alias, because an interface is not assignable to `Json`.
export type Attachment = {
  readonly $attachment: {
    readonly [Field in keyof BlobReference]: BlobReference[Field];
  } & {
    readonly contentType: string;
    /** How the file is encrypted. Absent if it is stored in plain text. */
    readonly sealed?: EncryptionInfo;
  };
};

const CONTENT_TYPE =
  /^[a-z0-9!#$&^_.+-]{1,127}\/[a-z0-9!#$&^_.+-]{1,127}(?:; ?[a-z0-9-]{1,32}=[A-Za-z0-9_.:+-]{1,127})*$/i;
const ATTACHMENT_MARK = '"$attachment"';

export function isContentType(value: unknown): value is string {
  return typeof value === "string" && value.length <= 255 && CONTENT_TYPE.test(value);
}

/**
 * Returns the value as an attachment with its fields in a fixed order, or undefined if it is not an
 * attachment.
 */
export function asAttachment(value: unknown): Attachment | undefined {
  if (!isRecord(value) || Object.keys(value).length !== 1 || !Object.hasOwn(value, "$attachment"))
    return undefined;
  const inner = value["$attachment"];
  if (!isRecord(inner)) return undefined;
  const { contentType, sealed, ...reference } = inner;
  if (!isContentType(contentType) || !isBlobReference(reference)) return undefined;
  const { store, key, bytes, sha256 } = reference;
  const clear = { store, key, bytes, sha256, contentType };
  if (!Object.hasOwn(inner, "sealed")) return { $attachment: clear };
  // If the encryption cannot be read, the attachment must not pass as an unencrypted one.
  const encryption = asEncryptionInfo(sealed, bytes);
  return encryption === undefined ? undefined : { $attachment: { ...clear, sealed: encryption } };
}

/**
 * Returns true if the value is an attachment. For a field of your schema library, as in
 * `z.custom<Attachment>(isAttachment)`.
 */
export function isAttachment(value: unknown): value is Attachment {
  return asAttachment(value) !== undefined;
}

/** Returns the schema of a message that consists of one attachment. */
export function attachment(): StandardSchemaV1<Attachment, Attachment> {
  return schema;
}

const schema: StandardSchemaV1<Attachment, Attachment> = {
  "~standard": {
    version: 1,
    vendor: "sagabox",
    validate: (value) => {
      const found = asAttachment(value);
      return found === undefined
        ? { issues: [{ message: "must be an attachment made by bus.attach()" }] }
        : { value: found };
    },
  },
};

/**
 * Finds all attachments in the JSON text of a payload. A text without attachments costs one native search.
 */
export function findAttachments(text: string): readonly Attachment[] {
  if (!text.includes(ATTACHMENT_MARK)) return [];
  const found: Attachment[] = [];
  const open: unknown[] = [JSON.parse(text)];
  for (let value = open.pop(); value !== undefined; value = open.pop()) {
    if (typeof value !== "object" || value === null) continue;
    const one = asAttachment(value);
    if (one === undefined) for (const inner of Object.values(value)) open.push(inner);
    else found.push(one);
  }
  return found;
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/**
 * Names bytes in a store and says how to verify them. It holds no address: the reader decides which store an
 * id means.
 */
export interface BlobReference {
  readonly store: string;
  /** Made of a database id, the day, and 128 random bits. */
  readonly key: string;
  readonly bytes: number;
  /** 64 hexadecimal digits. */
  readonly sha256: string;
}

const STORE = /^[a-z0-9][a-z0-9-]{0,62}$/;
const KEY = /^[0-9a-f]{12}\/\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])\/[0-9a-f]{32}$/;
const SHA256 = /^[0-9a-f]{64}$/;

export function isStoreId(value: unknown): value is string {
  return typeof value === "string" && STORE.test(value);
}

export function isBlobKey(value: unknown): value is string {
  return typeof value === "string" && value.length === 56 && KEY.test(value);
}

/** Returns true if the value has exactly these four fields, each in its canonical form. */
export function isBlobReference(value: unknown): value is BlobReference {
  if (typeof value !== "object" || value === null || Object.keys(value).length !== 4) return false;
  const { store, key, bytes, sha256 } = value as Record<string, unknown>;
  return (
    isStoreId(store) &&
    isBlobKey(key) &&
    typeof bytes === "number" &&
    Number.isSafeInteger(bytes) &&
    bytes >= 0 &&
    typeof sha256 === "string" &&
    sha256.length === 64 &&
    SHA256.test(sha256)
  );
}

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
function asEncryptionInfo(value: unknown, storedBytes: number): EncryptionInfo | undefined {
  if (typeof value !== "object" || value === null || Object.keys(value).length !== 3) return undefined;
  const { keyId, salt, plainBytes } = value as Record<string, unknown>;
  if (typeof keyId !== "string" || !KEY_ID.test(keyId)) return undefined;
  if (typeof salt !== "string" || !SALT.test(salt)) return undefined;
  if (typeof plainBytes !== "number" || !Number.isSafeInteger(plainBytes) || plainBytes < 0) return undefined;
  return encryptedSize(plainBytes) === storedBytes ? { keyId, salt, plainBytes } : undefined;
}
