import { SagaboxError } from "../errors/index.ts";
import type { Database, Queryable } from "../storage/index.ts";

/** One thing in a store. */
export interface StoredBlob {
  readonly key: string;
  /** By the clock of the store. */
  readonly storedAt: Date;
}

export interface BlobPage {
  readonly blobs: readonly StoredBlob[];
  /** Given back to get the next page; undefined at the end. */
  readonly next: string | undefined;
}

/**
 * Where large payloads and attachments lie. Keys are texts like `0f3a…/2026-11-16/9c41…`: lower case letters, digits,
 * dashes and two slashes. Whatever is thrown and is no error of ours counts as "the store is not available".
 */
export interface BlobStore {
  /** Its name in references: lower case letters, digits and dashes. Whoever reads them must know a store by it. */
  readonly id: string;
  /** Resolves when the bytes are safe. A put that failed or was aborted leaves nothing under its key. */
  put(key: string, bytes: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<void>;
  /** The bytes, read as they are asked for. Throws `blobMissing(key)` when there are none. */
  get(key: string, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>>;
  /** What is not there counts as deleted. */
  delete(keys: readonly string[], signal: AbortSignal): Promise<void>;
  /** Everything whose key begins so, also what a crash left half-written, page by page, each once. */
  list(prefix: string, cursor: string | undefined, signal: AbortSignal): Promise<BlobPage>;
}

export interface BlobHome {
  readonly database: Database;
  readonly schema: string;
}

/** A store inside the bus's own database: what is put there can share the fate of a transaction. */
export interface LocalBlobStore extends BlobStore {
  settleIn(home: BlobHome): void;
  putIn(tx: Queryable, key: string, bytes: AsyncIterable<Uint8Array>): Promise<void>;
}

export function isLocalStore(store: BlobStore): store is LocalBlobStore {
  return "settleIn" in store && "putIn" in store;
}

/** There is nothing under this key. */
export function blobMissing(key: string): SagaboxError<"CLAIM_MISSING"> {
  return new SagaboxError(
    "CLAIM_MISSING",
    `There is nothing under ${key} in its store: it was removed, or its retention was shorter than the message's.`,
  );
}

/** Nothing more fits in. */
export function storeFull(id: string, cause: unknown): SagaboxError<"CLAIM_STORE_FULL"> {
  return new SagaboxError("CLAIM_STORE_FULL", `Store "${id}" has no room left. Make room and try again.`, {
    cause,
  });
}

/** It does not answer, or not in time, or does not let us in. */
export function storeUnavailable(
  id: string,
  why: string,
  cause?: unknown,
): SagaboxError<"CLAIM_STORE_UNAVAILABLE"> {
  return new SagaboxError("CLAIM_STORE_UNAVAILABLE", `Store "${id}" is not available: ${why}`, { cause });
}
