import type * as Sdk from "@aws-sdk/client-s3";
import type { StoredBlob } from "../blob-store.ts";

/** An upload in parts that was begun, and neither completed nor given up. */
interface UnfinishedUpload extends StoredBlob {
  readonly uploadId: string;
}

interface UploadPage {
  readonly uploads: readonly UnfinishedUpload[];
  readonly next: string | undefined;
}

/** After which upload the next page begins. */
interface Marker {
  readonly KeyMarker?: string | undefined;
  readonly UploadIdMarker?: string | undefined;
}

interface BucketClient {
  readonly sdk: typeof Sdk;
  readonly client: Sdk.S3Client;
  readonly bucket: string;
}

/** Few enough that giving them all up is no long silence. */
const PAGE = 100;
const AT_ONCE = 10;
const UNSUPPORTED_ERRORS = new Set(["NotImplemented", "MethodNotAllowed"]);

/** What a process that died, or could not even say that it gives up, left of large uploads. No list of objects shows it. */
export class UnfinishedUploads {
  readonly #bucket: BucketClient;

  constructor(place: BucketClient) {
    this.#bucket = place;
  }

  /** A server that does not know the question keeps nothing that could be asked for. */
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

  /** Gives up every upload of these keys. They share the folder of their day, so a day is asked for once. */
  async abort(keys: readonly string[], signal: AbortSignal): Promise<void> {
    const wanted = new Set(keys);
    for (const folder of new Set(keys.map((key) => key.slice(0, key.lastIndexOf("/") + 1)))) {
      for (let cursor: string | undefined = ""; cursor !== undefined;) {
        const page: UploadPage = await this.listPage(folder, cursor, signal);
        await this.#abortAll(
          page.uploads.filter(({ key }) => wanted.has(key)),
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
      if (errorName(error) !== "NoSuchUpload") throw error; // else another collector was faster
    });
  }
}

function formatMarker({ NextKeyMarker, NextUploadIdMarker }: Sdk.ListMultipartUploadsCommandOutput): string {
  return JSON.stringify({ KeyMarker: NextKeyMarker, UploadIdMarker: NextUploadIdMarker } satisfies Marker);
}

function errorName(error: unknown): string {
  return error instanceof Error ? error.name : "";
}
