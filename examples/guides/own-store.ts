import { blobMissing, type BlobStore } from "sagabox/claim-check";

// #region client
/** What the clients of Google Cloud Storage and Azure Blob Storage have in common, under names of their own. */
export interface ObjectService {
  upload(name: string, bytes: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<void>;
  /** Undefined when there is no such object. */
  download(name: string, signal: AbortSignal): Promise<AsyncIterable<Uint8Array> | undefined>;
  remove(name: string, signal: AbortSignal): Promise<void>;
  list(
    prefix: string,
    page: string | undefined,
  ): Promise<{ objects: readonly { name: string; createdAt: Date }[]; nextPage: string | undefined }>;
}
// #endregion client

// #region store
export function cloudStore(id: string, objects: ObjectService): BlobStore {
  return {
    id,
    put: (key, bytes, signal) => objects.upload(key, bytes, signal),
    get: async (key, signal) => {
      const found = await objects.download(key, signal);
      if (found === undefined) throw blobMissing(key);
      return found;
    },
    delete: async (keys, signal) => {
      for (const key of keys) await objects.remove(key, signal); // what is not there counts as deleted
    },
    list: async (prefix, cursor) => {
      const { objects: found, nextPage } = await objects.list(prefix, cursor);
      return {
        blobs: found.map(({ name, createdAt }) => ({ key: name, storedAt: createdAt })),
        next: nextPage,
      };
    },
  };
}
// #endregion store
