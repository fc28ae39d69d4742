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
