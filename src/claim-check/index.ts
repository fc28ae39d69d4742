// Large payloads and attachments travel beside the message: a blob store keeps the bytes, the message a reference to
// them. Stores are a small port with three adapters: the bus's own database, a folder, S3. What lies where and who needs
// it is kept in tables of ours, written in the transaction of the message, so that a collector can delete the rest.
export type { AttachmentCipher } from "./attachment-cipher.ts";
export { ClaimCheck, type AttachOptions, type ClaimCheckParts } from "./claim-check.ts";
export { readClaimCheckSettings, type ClaimCheckOptions, type ClaimCheckSettings } from "./options.ts";
export { Collector, type CollectReport } from "./collector.ts";
export type { BlobPage, BlobStore, LocalBlobStore, StoredBlob } from "./blob-store.ts";
export { blobMissing, storeFull } from "./blob-store.ts";
export type { ByteSource } from "./bytes.ts";
export { catchStreamErrors } from "./catch-stream-errors.ts";
export { postgresStore, type PostgresStoreOptions } from "./postgres-store.ts";
export { fileStore, type FileStoreOptions } from "./file-store.ts";
export { s3Store } from "./s3/s3-store.ts";
export type { S3ClientShape, S3StoreOptions } from "./s3/s3-options.ts";
