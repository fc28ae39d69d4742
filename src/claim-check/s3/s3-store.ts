import type * as Sdk from "@aws-sdk/client-s3";
import { ClientLoader } from "../../transport/index.ts";
import { blobMissing, type BlobPage, type BlobStore, type StoredBlob, storeFull } from "../blob-store.ts";
import { resizeChunks } from "../bytes.ts";
import { assertSafe, readS3Settings, type S3Settings, type S3StoreOptions } from "./s3-options.ts";

interface Part {
  readonly ETag: string | undefined;
  readonly PartNumber: number;
}

/** The minimum part size of S3, so that even a slow connection transfers a part within the timeout. */
const PART_BYTES = 5 * 1_048_576;
const MAX_KEYS_PER_DELETE = 1_000;
/** Prefixes of cursors: which listing the cursor continues. */
const OBJECTS = "objects:";
const UPLOADS = "uploads:";

/** Stores blobs in Amazon S3 or a compatible server. Needs the package @aws-sdk/client-s3. */
export function s3Store(options: S3StoreOptions): BlobStore {
  return new S3Store(readS3Settings(options));
}

class S3Store implements BlobStore {
  readonly id: string;
  readonly #settings: S3Settings;
  readonly #loader = new ClientLoader<typeof Sdk>({
    broker: "S3",
    install: ["@aws-sdk/client-s3@3"],
    load: () => import("@aws-sdk/client-s3"),
  });
  #client: Promise<Sdk.S3Client> | undefined;

  constructor(settings: S3Settings) {
    this.id = settings.id;
    this.#settings = settings;
  }

  // Parts are whole buffers, because not every server supports the chunked framing of a body of unknown length.
  async put(key: string, bytes: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<void> {
    const pieces = resizeChunks(bytes, PART_BYTES);
    const first = await pieces.next();
    const second = await pieces.next();
    if (first.done === true) return;
    await this.#attempt(key, () =>
      second.done === true
        ? this.#putWhole(key, first.value, signal)
        : this.#putParts(key, prependChunks(first.value, second.value, pieces), signal),
    );
  }

  async get(key: string, signal: AbortSignal): Promise<AsyncIterable<Uint8Array>> {
    const client = await this.#getClient();
    const { GetObjectCommand } = this.#loader.client;
    const found = await this.#attempt(key, () =>
      client.send(new GetObjectCommand(this.#toObject(key)), { abortSignal: signal }),
    );
    if (found.Body === undefined) throw blobMissing(key);
    return found.Body as unknown as AsyncIterable<Uint8Array>;
  }

  async delete(keys: readonly string[], signal: AbortSignal): Promise<void> {
    const client = await this.#getClient();
    const { DeleteObjectsCommand } = this.#loader.client;
    const names = keys.map((key) => this.#settings.prefix + key);
    for (let at = 0; at < names.length; at += MAX_KEYS_PER_DELETE) {
      const some = names.slice(at, at + MAX_KEYS_PER_DELETE).map((name) => ({ Key: name }));
      const command = new DeleteObjectsCommand({
        Bucket: this.#settings.bucket,
        Delete: { Objects: some, Quiet: true },
      });
      const { Errors: [failed] = [] } = await client.send(command, { abortSignal: signal });
      if (failed !== undefined) throw namedError(failed.Code ?? "DeleteFailed");
    }
    await this.#createUnfinishedUploads(client).abort(names, signal);
  }

  // Lists the objects first, then the unfinished uploads.
  async list(prefix: string, cursor: string | undefined, signal: AbortSignal): Promise<BlobPage> {
    const client = await this.#getClient();
    const begin = this.#settings.prefix + prefix;
    if (cursor?.startsWith(UPLOADS) !== true) return this.#listObjects(client, begin, cursor, signal);
    const { uploads, next } = await this.#createUnfinishedUploads(client).listPage(
      begin,
      cursor.slice(UPLOADS.length),
      signal,
    );
    return { blobs: this.#removePrefix(uploads), next: next === undefined ? undefined : UPLOADS + next };
  }

  async #listObjects(
    client: Sdk.S3Client,
    begin: string,
    cursor: string | undefined,
    signal: AbortSignal,
  ): Promise<BlobPage> {
    const { ListObjectsV2Command } = this.#loader.client;
    const command = new ListObjectsV2Command({
      Bucket: this.#settings.bucket,
      Prefix: begin,
      MaxKeys: MAX_KEYS_PER_DELETE,
      ...(cursor === undefined ? {} : { ContinuationToken: cursor.slice(OBJECTS.length) }),
    });
    const { Contents = [], NextContinuationToken: next } = await client.send(command, {
      abortSignal: signal,
    });
    const blobs = Contents.flatMap(({ Key: key, LastModified: storedAt }) =>
      key === undefined || storedAt === undefined ? [] : [{ key, storedAt }],
    );
    return { blobs: this.#removePrefix(blobs), next: next === undefined ? UPLOADS : OBJECTS + next };
  }

  #removePrefix(found: readonly StoredBlob[]): readonly StoredBlob[] {
    const { length } = this.#settings.prefix;
    return found.map(({ key, storedAt }) => ({ key: key.slice(length), storedAt }));
  }

  #createUnfinishedUploads(client: Sdk.S3Client): UnfinishedUploads {
    return new UnfinishedUploads({ sdk: this.#loader.client, client, bucket: this.#settings.bucket });
  }

  async #putWhole(key: string, body: Uint8Array, signal: AbortSignal): Promise<void> {
    const client = await this.#getClient();
    const { PutObjectCommand } = this.#loader.client;
    const command = new PutObjectCommand({
      ...this.#toObject(key),
      Body: body,
      ContentLength: body.byteLength,
      ContentType: "application/octet-stream",
    });
    await client.send(command, { abortSignal: signal });
  }

  async #putParts(key: string, pieces: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<void> {
    const client = await this.#getClient();
    const { CreateMultipartUploadCommand, CompleteMultipartUploadCommand } = this.#loader.client;
    const object = this.#toObject(key);
    const begun = await client.send(new CreateMultipartUploadCommand(object), { abortSignal: signal });
    const upload = { ...object, UploadId: begun.UploadId };
    try {
      const parts: Part[] = [];
      for await (const piece of pieces) {
        parts.push(await this.#putPart(upload, parts.length + 1, piece, signal));
      }
      const whole = new CompleteMultipartUploadCommand({ ...upload, MultipartUpload: { Parts: parts } });
      await client.send(whole, { abortSignal: signal });
    } catch (error) {
      await this.#abortUpload(upload);
      throw error;
    }
  }

  async #putPart(
    upload: { Bucket: string; Key: string; UploadId: string | undefined },
    number: number,
    body: Uint8Array,
    signal: AbortSignal,
  ): Promise<Part> {
    const client = await this.#getClient();
    const { UploadPartCommand } = this.#loader.client;
    const command = new UploadPartCommand({
      ...upload,
      PartNumber: number,
      Body: body,
      ContentLength: body.byteLength,
    });
    const { ETag } = await client.send(command, { abortSignal: signal });
    return { ETag, PartNumber: number };
  }

  // If this fails, list() still returns the upload, and the collector deletes it after the grace period.
  async #abortUpload(upload: { Bucket: string; Key: string; UploadId: string | undefined }): Promise<void> {
    const client = await this.#getClient();
    const { AbortMultipartUploadCommand } = this.#loader.client;
    await client
      .send(new AbortMultipartUploadCommand(upload), { abortSignal: AbortSignal.timeout(5_000) })
      .catch(() => undefined);
  }

  #toObject(key: string): { Bucket: string; Key: string } {
    const { bucket, prefix } = this.#settings;
    return { Bucket: bucket, Key: prefix + key };
  }

  #getClient(): Promise<Sdk.S3Client> {
    this.#client ??= this.#connect().catch((error: unknown) => {
      this.#client = undefined;
      throw error;
    });
    return this.#client;
  }

  async #connect(): Promise<Sdk.S3Client> {
    const { S3Client } = await this.#loader.load();
    const { client: configured, config } = this.#settings;
    const client = configured === undefined ? new S3Client(config) : (configured as unknown as Sdk.S3Client);
    const endpoint = await client.config.endpoint?.();
    if (endpoint !== undefined) assertSafe(`${endpoint.protocol}//${endpoint.hostname}`);
    return client;
  }

  async #attempt<T>(key: string, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      const name = error instanceof Error ? error.name : "";
      if (name === "NoSuchKey" || name === "NotFound") throw blobMissing(key);
      if (/StorageFull|QuotaExceeded|InsufficientStorage/.test(name)) throw storeFull(this.id, error);
      throw error;
    }
  }
}

async function* prependChunks(
  first: Uint8Array,
  second: Uint8Array,
  rest: AsyncIterable<Uint8Array>,
): AsyncGenerator<Uint8Array> {
  yield first;
  yield second;
  yield* rest;
}

function namedError(name: string): Error {
  return Object.assign(new Error(`S3 answered ${name}.`), { name });
}

/** A multipart upload that was neither completed nor aborted. */
interface UnfinishedUpload extends StoredBlob {
  readonly uploadId: string;
}

interface UploadPage {
  readonly uploads: readonly UnfinishedUpload[];
  readonly next: string | undefined;
}

/** The upload after which the next page begins. */
interface Marker {
  readonly KeyMarker?: string | undefined;
  readonly UploadIdMarker?: string | undefined;
}

interface BucketClient {
  readonly sdk: typeof Sdk;
  readonly client: Sdk.S3Client;
  readonly bucket: string;
}

/** Small enough to abort a whole page within the timeout. */
const PAGE = 100;
const AT_ONCE = 10;
const UNSUPPORTED_ERRORS = new Set(["NotImplemented", "MethodNotAllowed"]);

/** Lists and aborts multipart uploads that a crashed process left. A listing of objects does not contain them. */
class UnfinishedUploads {
  readonly #bucket: BucketClient;

  constructor(bucket: BucketClient) {
    this.#bucket = bucket;
  }

  /** Returns an empty page if the server does not support listing uploads. */
  async listPage(prefix: string, cursor: string, signal: AbortSignal): Promise<UploadPage> {
    const { sdk, client, bucket } = this.#bucket;
    const after = cursor === "" ? {} : (JSON.parse(cursor) as Marker);
    const command = new sdk.ListMultipartUploadsCommand({
      Bucket: bucket,
      Prefix: prefix,
      MaxUploads: PAGE,
      ...after,
    });
    try {
      const found = await client.send(command, { abortSignal: signal });
      const uploads = (found.Uploads ?? []).flatMap(
        ({ Key: key, UploadId: uploadId, Initiated: storedAt }) =>
          key === undefined || uploadId === undefined || storedAt === undefined
            ? []
            : [{ key, uploadId, storedAt }],
      );
      return { uploads, next: found.IsTruncated === true ? formatMarker(found) : undefined };
    } catch (error) {
      if (UNSUPPORTED_ERRORS.has(errorName(error))) return { uploads: [], next: undefined };
      throw error;
    }
  }

  /** Aborts all uploads of these keys. Keys of one day share a folder, so each day is listed once. */
  async abort(keys: readonly string[], signal: AbortSignal): Promise<void> {
    const keySet = new Set(keys);
    for (const folder of new Set(keys.map((key) => key.slice(0, key.lastIndexOf("/") + 1)))) {
      for (let cursor: string | undefined = ""; cursor !== undefined;) {
        const page: UploadPage = await this.listPage(folder, cursor, signal);
        await this.#abortAll(
          page.uploads.filter(({ key }) => keySet.has(key)),
          signal,
        );
        cursor = page.next;
      }
    }
  }

  async #abortAll(uploads: readonly UnfinishedUpload[], signal: AbortSignal): Promise<void> {
    for (let at = 0; at < uploads.length; at += AT_ONCE) {
      await Promise.all(uploads.slice(at, at + AT_ONCE).map((upload) => this.#abortOne(upload, signal)));
    }
  }

  async #abortOne({ key, uploadId }: UnfinishedUpload, signal: AbortSignal): Promise<void> {
    const { sdk, client, bucket } = this.#bucket;
    const command = new sdk.AbortMultipartUploadCommand({ Bucket: bucket, Key: key, UploadId: uploadId });
    await client.send(command, { abortSignal: signal }).catch((error: unknown) => {
      if (errorName(error) !== "NoSuchUpload") throw error; // another collector may have aborted it
    });
  }
}

function formatMarker({ NextKeyMarker, NextUploadIdMarker }: Sdk.ListMultipartUploadsCommandOutput): string {
  return JSON.stringify({ KeyMarker: NextKeyMarker, UploadIdMarker: NextUploadIdMarker } satisfies Marker);
}

function errorName(error: unknown): string {
  return error instanceof Error ? error.name : "";
}
