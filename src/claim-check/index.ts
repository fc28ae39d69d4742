// Large payloads and attachments are kept in a blob store, and the message carries a reference to them. There are three
// stores: the bus's own database, a folder and S3. The tables blob and blob_use record which blobs exist and which messages
// use them. They are written in the message's transaction, so that the collector can delete unused blobs.
export {
  ClaimCheck,
  type AttachmentCipher,
  type AttachOptions,
  type ClaimCheckParts,
} from "./claim-check.ts";
export { readClaimCheckSettings, type ClaimCheckOptions, type ClaimCheckSettings } from "./options.ts";
export { Collector, type CollectReport } from "./collector.ts";
export type { BlobPage, BlobStore, LocalBlobStore, StoredBlob } from "./blob-store.ts";
export { blobMissing, storeFull } from "./blob-store.ts";
export { catchStreamErrors, type ByteSource } from "./bytes.ts";
export { postgresStore, type PostgresStoreOptions } from "./postgres-store.ts";
export { fileStore, type FileStoreOptions } from "./file-store.ts";
export { s3Store } from "./s3/s3-store.ts";
export type { S3ClientShape, S3StoreOptions } from "./s3/s3-options.ts";
