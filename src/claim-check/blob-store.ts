import { SagaboxError } from "../errors/index.ts";
import type { Database, Queryable } from "../storage/index.ts";

/** One object in a store. */
export interface StoredBlob {
  readonly key: string;
  /** When it was stored, by the store's clock. */
  readonly storedAt: Date;
}

export interface BlobPage {
  readonly blobs: readonly StoredBlob[];
  /** The cursor of the next page; undefined on the last page. */
  readonly next: string | undefined;
}

/**
 * Stores large payloads and attachments. Keys look like `0f3a…/2026-11-16/9c41…`: lower case letters, digits, dashes and
 * two slashes. Any error that is not a SagaboxError is reported as CLAIM_STORE_UNAVAILABLE.
 */
export interface BlobStore {
  /** The store's name in references: lower case letters, digits and dashes. Every reader must configure a store with this id. */
  readonly id: string;
  /** Resolves when the bytes are durable. A failed or aborted put leaves nothing under its key. */
  put(key: string, bytes: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<void>;
  /** Returns the bytes as a lazy stream. Throws `blobMissing(key)` if the key does not exist. */
  get(key: string, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>>;
  /** Deletes the keys. Keys that do not exist are ignored. */
  delete(keys: readonly string[], signal: AbortSignal): Promise<void>;
  /** Lists all objects with this key prefix, including those that a crash left half-written, page by page, each once. */
  list(prefix: string, cursor: string | undefined, signal: AbortSignal): Promise<BlobPage>;
}

export interface BlobHome {
  readonly database: Database;
  readonly schema: string;
}

/** A store in the bus's own database. Its writes can be part of a transaction. */
export interface LocalBlobStore extends BlobStore {
  /** Binds the store to the database of its bus. */
  attach(home: BlobHome): void;
  putIn(tx: Queryable, key: string, bytes: AsyncIterable<Uint8Array>): Promise<void>;
}

export function isLocalStore(store: BlobStore): store is LocalBlobStore {
  return "attach" in store && "putIn" in store;
}

/** The error for a key that does not exist in its store. */
export function blobMissing(key: string): SagaboxError<"CLAIM_MISSING"> {
  return new SagaboxError(
    "CLAIM_MISSING",
    `The store has no object ${key}: it was removed, or its retention was shorter than the message's.`,
  );
}

/** The error for a store that has no space left. */
export function storeFull(id: string, cause: unknown): SagaboxError<"CLAIM_STORE_FULL"> {
  return new SagaboxError(
    "CLAIM_STORE_FULL",
    `Store "${id}" has no space left. Free some space and try again.`,
    {
      cause,
    },
  );
}

/** The error for a store that does not respond, responds too late or denies access. */
export function storeUnavailable(
  id: string,
  why: string,
  cause?: unknown,
): SagaboxError<"CLAIM_STORE_UNAVAILABLE"> {
  return new SagaboxError("CLAIM_STORE_UNAVAILABLE", `Store "${id}" is not available: ${why}`, { cause });
}
