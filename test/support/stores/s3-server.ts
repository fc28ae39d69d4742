import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import type { SecureContextOptions } from "node:tls";

interface S3rverInstance {
  run(): Promise<{ readonly port: number }>;
  close(): Promise<void>;
}

type ServerClass = new (options: {
  port: number;
  address: string;
  silent: boolean;
  directory: string;
  configureBuckets: readonly { name: string }[];
}) => S3rverInstance;

// It has no types of its own.
const require = createRequire(import.meta.url);
const S3rver = require("s3rver") as ServerClass;

export interface S3Server {
  readonly endpoint: string;
  readonly bucket: string;
  /** Where it keeps its files. */
  readonly folder: string;
  stop(): Promise<void>;
}

export const s3Credentials = { accessKeyId: "S3RVER", secretAccessKey: "S3RVER" };

/** A real HTTP server that speaks S3, with one bucket, in a folder of its own. */
export async function startS3Server(): Promise<S3Server> {
  const folder = await mkdtemp(join(tmpdir(), "sagabox-s3-"));
  const bucket = "payloads";
  const server = new S3rver({
    port: 0,
    address: "127.0.0.1",
    silent: true,
    directory: folder,
    configureBuckets: [{ name: bucket }],
  });
  const { port } = await server.run();
  return {
    endpoint: `http://127.0.0.1:${port}`,
    bucket,
    folder,
    stop: async () => {
      await server.close();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

export type ServerTls = SecureContextOptions;

interface Upload {
  readonly id: string;
  readonly key: string;
  readonly begunAt: Date;
  readonly parts: Map<number, Buffer>;
}

interface Answer {
  readonly status?: number;
  readonly body?: string | Buffer;
  readonly etag?: string;
}

interface Question {
  readonly method: string;
  readonly key: string;
  readonly query: URLSearchParams;
  readonly body: Buffer;
}

/** Uploads per page: few, so that a test needs more than one page. */
const PAGE = 2;
const BUCKET = "payloads";

/** As much of S3 as large uploads need, with what was begun and never ended; the other test server does not list that. */
export class MultipartServer {
  readonly bucket = BUCKET;
  readonly objects = new Map<string, Buffer>();
  uploads: Upload[] = [];
  /** How many questions came through. */
  asked = 0;
  readonly #server: Server;
  readonly #scheme: "http" | "https";
  #begun = 0;
  #lastPart = Number.POSITIVE_INFINITY;
  #isGone = false;

  private constructor(tls: ServerTls | undefined) {
    const serve = (request: IncomingMessage, response: ServerResponse): void =>
      void this.#serve(request, response);
    this.#server = tls === undefined ? createServer(serve) : createTlsServer(tls, serve);
    this.#scheme = tls === undefined ? "http" : "https";
  }

  static async start(tls?: ServerTls): Promise<MultipartServer> {
    const server = new MultipartServer(tls);
    server.#server.listen(0, "127.0.0.1");
    await once(server.#server, "listening");
    return server;
  }

  get endpoint(): string {
    return `${this.#scheme}://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Begins an upload and sends a part of it, like a process that is killed. */
  leave(key: string, begunAt: Date): void {
    this.#begun += 1;
    const id = `upload-${String(this.#begun).padStart(4, "0")}`;
    this.uploads.push({ id, key, begunAt, parts: new Map([[1, Buffer.from("half of it")]]) });
  }

  /** As if all that was begun had been begun a day earlier; the day is part of each key. */
  ageUploads(): void {
    const dayBefore = (date: Date): Date => new Date(date.getTime() - 86_400_000);
    this.uploads = this.uploads.map(({ key, begunAt, ...rest }) => ({
      ...rest,
      key: key.replace(/\d{4}-\d\d-\d\d/, (day) => dayBefore(new Date(day)).toISOString().slice(0, 10)),
      begunAt: dayBefore(begunAt),
    }));
  }

  /** When this part arrives, the server closes without an answer and refuses connections. */
  dieAtPart(number: number): void {
    this.#lastPart = number;
  }

  comeBack(): void {
    this.#lastPart = Number.POSITIVE_INFINITY;
    this.#isGone = false;
  }

  async stop(): Promise<void> {
    this.#server.closeAllConnections();
    this.#server.close();
    await once(this.#server, "close");
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    this.asked += 1;
    const url = new URL(request.url ?? "/", "http://s3");
    const body = await buffer(request);
    if (Number(url.searchParams.get("partNumber")) >= this.#lastPart) this.#isGone = true;
    if (this.#isGone) {
      request.socket.destroy();
      return;
    }
    const key = decodeURIComponent(url.pathname.slice(`/${BUCKET}`.length).replace(/^\//, ""));
    const answer = this.#answer({ method: request.method ?? "", key, query: url.searchParams, body });
    response.statusCode = answer.status ?? 200;
    if (answer.etag !== undefined) response.setHeader("etag", answer.etag);
    response.end(answer.body ?? "");
  }

  #answer(question: Question): Answer {
    const { method, key, query, body } = question;
    if (key === "") return this.#ofBucket(question);
    if (query.has("uploads")) return this.#begin(key);
    if (query.has("uploadId")) return this.#ofUpload(question);
    if (method === "PUT") this.objects.set(key, body);
    const found = this.objects.get(key);
    return found === undefined ? failure(404, "NoSuchKey") : { body: found, etag: '"whole"' };
  }

  #ofBucket({ query, body }: Question): Answer {
    const prefix = query.get("prefix") ?? "";
    if (query.has("uploads")) return this.#listUploads(prefix, query);
    if (query.has("delete")) {
      for (const [, key = ""] of body.toString().matchAll(/<Key>(.*?)<\/Key>/g)) this.objects.delete(key);
      return { body: "<DeleteResult></DeleteResult>" };
    }
    const now = new Date().toISOString();
    const keys = [...this.objects.keys()].filter((key) => key.startsWith(prefix));
    const contents = keys.map(
      (key) => `<Contents><Key>${key}</Key><LastModified>${now}</LastModified></Contents>`,
    );
    return { body: `<ListBucketResult>${contents.join("")}</ListBucketResult>` };
  }

  #begin(key: string): Answer {
    this.leave(key, new Date());
    const upload = this.uploads.at(-1);
    upload?.parts.clear();
    return {
      body: `<InitiateMultipartUploadResult><UploadId>${upload?.id}</UploadId></InitiateMultipartUploadResult>`,
    };
  }

  #ofUpload({ method, key, query, body }: Question): Answer {
    const upload = this.uploads.find(({ id }) => id === query.get("uploadId"));
    if (upload?.key !== key) return failure(404, "NoSuchUpload");
    const number = query.get("partNumber");
    if (number !== null) {
      upload.parts.set(Number(number), body);
      return { etag: `"part-${number}"` };
    }
    this.uploads = this.uploads.filter((one) => one !== upload);
    if (method === "DELETE") return { status: 204 };
    this.objects.set(key, Buffer.concat([...upload.parts.values()]));
    return { body: "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>" };
  }

  // In order of their keys, and of their ids where they share one; the marker's key may be deleted by now.
  #listUploads(prefix: string, query: URLSearchParams): Answer {
    const uploadKey = (key: string, id: string): string => `${key} ${id}`;
    const after = uploadKey(query.get("key-marker") ?? "", query.get("upload-id-marker") ?? "");
    const all = this.uploads
      .filter(({ key, id }) => key.startsWith(prefix) && uploadKey(key, id) > after)
      .toSorted((a, b) => (uploadKey(a.key, a.id) < uploadKey(b.key, b.id) ? -1 : 1));
    const page = all.slice(0, PAGE);
    const last = page.at(-1);
    const isCut = all.length > PAGE;
    const uploads = page.map(
      ({ key, id, begunAt }) =>
        `<Upload><Key>${key}</Key><UploadId>${id}</UploadId><Initiated>${begunAt.toISOString()}</Initiated></Upload>`,
    );
    const markers = isCut
      ? `<NextKeyMarker>${last?.key}</NextKeyMarker><NextUploadIdMarker>${last?.id}</NextUploadIdMarker>`
      : "";
    return {
      body: `<ListMultipartUploadsResult><IsTruncated>${isCut}</IsTruncated>${markers}${uploads.join("")}</ListMultipartUploadsResult>`,
    };
  }
}

function failure(status: number, code: string): Answer {
  return { status, body: `<Error><Code>${code}</Code><Message>${code}</Message></Error>` };
}
