import { constants } from "node:fs";
import { lstat, mkdir, open, readdir, realpath, rename, unlink, type FileHandle } from "node:fs/promises";
import { dirname, isAbsolute, join, resolve } from "node:path";
import { SagaboxError } from "../errors/index.ts";
import { isBlobKey } from "../message/index.ts";
import { rejectUnknownKeys, text } from "../options/index.ts";
import { blobMissing, storeFull, storeUnavailable, type BlobPage, type BlobStore } from "./blob-store.ts";
import { resizeChunks } from "./bytes.ts";
import { checkStoreId } from "./postgres-store.ts";

export interface FileStoreOptions {
  /** An absolute path. The store creates it if it is missing. Other programs must not write there. */
  readonly folder: string;
  /** Default "files". Every service that reads from the folder must use the same id. */
  readonly id?: string;
}

/** Tests replace it to simulate a full disk. */
type OpenFile = typeof open;

const { O_CREAT, O_EXCL, O_NOFOLLOW, O_RDONLY, O_WRONLY } = constants;
const CHUNK_BYTES = 262_144;
const PAGE = 1_000;
const PART = ".part";
const FULL = new Set(["ENOSPC", "EDQUOT", "EFBIG"]);

/** Stores blobs as files in a folder that all services can read: on a local or a shared disk. */
export function fileStore(options: FileStoreOptions): BlobStore {
  return fileStoreWith(options, open);
}

export function fileStoreWith(options: FileStoreOptions, openFile: OpenFile): BlobStore {
  rejectUnknownKeys("fileStore", options, ["folder", "id"]);
  const id = checkStoreId("fileStore.id", options.id ?? "files");
  const folder = text("fileStore.folder", options.folder, { max: 4_096, pattern: /^[^\0]+$/ });
  if (!isAbsolute(folder)) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      "fileStore.folder must be an absolute path: a relative one would depend on the working directory.",
    );
  }
  return new FileStore(id, resolve(folder), openFile);
}

class FileStore implements BlobStore {
  readonly id: string;
  readonly #folder: string;
  readonly #open: OpenFile;

  constructor(id: string, folder: string, openFile: OpenFile) {
    this.id = id;
    this.#folder = folder;
    this.#open = openFile;
  }

  async put(key: string, bytes: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<void> {
    const path = this.#toPath(key);
    await this.#attempt(async () => {
      await this.#makeFolders(path);
      await this.#write(path, bytes, signal);
    });
  }

  async get(key: string): Promise<AsyncIterable<Uint8Array>> {
    const path = this.#toPath(key);
    return this.#attempt(async () => {
      const file = await this.#openFile(path, key);
      try {
        await this.#assertInside(path);
        await assertSame(file, path, key);
        return readChunks(file);
      } catch (error) {
        await file.close();
        throw error;
      }
    });
  }

  async delete(keys: readonly string[]): Promise<void> {
    for (const key of keys) {
      const path = this.#toPath(key);
      await this.#attempt(async () => {
        if (!(await this.#isFolder(dirname(path)))) return;
        await this.#assertInside(path);
        await remove(path);
        await remove(path + PART);
      });
    }
  }

  // A prefix is the folder of one day, because the collector lists day by day.
  async list(prefix: string, cursor: string = ""): Promise<BlobPage> {
    if (!isBlobKey(`${prefix}${"0".repeat(32)}`)) throw storeUnavailable(this.id, "it lists day by day.");
    const path = join(this.#folder, prefix);
    return this.#attempt(async () => {
      if (!(await this.#isFolder(path))) return { blobs: [], next: undefined };
      await this.#assertInside(join(path, "any"));
      const names = (await readdir(path)).filter((name) => name > cursor).toSorted();
      const page = names.slice(0, PAGE);
      const found = await Promise.all(page.map((name) => listBlob(path, prefix, name)));
      return { blobs: found.flat(), next: names.length > PAGE ? page.at(-1) : undefined };
    });
  }

  // Creates one level at a time and checks it before it creates anything inside.
  async #makeFolders(path: string): Promise<void> {
    const day = dirname(path);
    await mkdir(this.#folder, { recursive: true, mode: 0o700 });
    for (const folder of [dirname(day), day]) {
      await mkdir(folder, { mode: 0o700 }).catch((error: unknown) => {
        if (errorCode(error) !== "EEXIST") throw error;
      });
      await this.#assertInside(join(folder, "any"));
    }
  }

  // The rename makes the file visible as a whole, and the syncs make it survive a power failure.
  async #write(path: string, bytes: AsyncIterable<Uint8Array>, signal: AbortSignal): Promise<void> {
    const part = path + PART;
    const file = await this.#open(part, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW, 0o600);
    try {
      try {
        for await (const piece of resizeChunks(bytes, CHUNK_BYTES)) {
          signal.throwIfAborted();
          await writeAll(file, piece);
        }
        await file.sync();
      } finally {
        await file.close();
      }
      signal.throwIfAborted();
      await rename(part, path);
    } catch (error) {
      await remove(part);
      throw error;
    }
    await syncFolder(dirname(path));
  }

  async #openFile(path: string, key: string): Promise<FileHandle> {
    try {
      return await this.#open(path, O_RDONLY | O_NOFOLLOW);
    } catch (error) {
      if (errorCode(error) === "ENOENT") throw blobMissing(key);
      throw errorCode(error) === "ELOOP" ? invalidKey(key) : error;
    }
  }

  #toPath(key: string): string {
    if (isBlobKey(key)) return join(this.#folder, key);
    throw invalidKey("a key of another form");
  }

  // A folder on the path may have been replaced by a symbolic link that leads outside.
  async #assertInside(path: string): Promise<void> {
    const expected = join(await realpath(this.#folder), dirname(path).slice(this.#folder.length));
    if ((await realpath(dirname(path))) !== expected) throw invalidKey("a folder that is a link");
  }

  async #isFolder(folder: string): Promise<boolean> {
    try {
      return (await lstat(folder)).isDirectory();
    } catch (error) {
      if (errorCode(error) === "ENOENT") return false;
      throw error;
    }
  }

  async #attempt<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      const code = errorCode(error);
      throw code !== undefined && FULL.has(code) ? storeFull(this.id, error) : error;
    }
  }
}

async function* readChunks(file: FileHandle): AsyncGenerator<Uint8Array> {
  try {
    for (;;) {
      const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(CHUNK_BYTES), 0, CHUNK_BYTES);
      if (bytesRead === 0) return;
      yield buffer.subarray(0, bytesRead);
    }
  } finally {
    await file.close();
  }
}

async function writeAll(file: FileHandle, bytes: Uint8Array): Promise<void> {
  for (let at = 0; at < bytes.byteLength;) at += (await file.write(bytes, at)).bytesWritten;
}

// Checks that the opened file is the one at `path`, so that a folder swapped for a link in between is noticed.
async function assertSame(file: FileHandle, path: string, key: string): Promise<void> {
  const [opened, found] = await Promise.all([file.stat(), lstat(path)]);
  if (!opened.isFile() || opened.ino !== found.ino || opened.dev !== found.dev) throw invalidKey(key);
}

async function listBlob(folder: string, prefix: string, name: string): Promise<BlobPage["blobs"]> {
  const key = prefix + (name.endsWith(PART) ? name.slice(0, -PART.length) : name);
  if (!isBlobKey(key)) return [];
  try {
    return [{ key, storedAt: (await lstat(join(folder, name))).mtime }];
  } catch (error) {
    if (errorCode(error) === "ENOENT") return []; // deleted since the folder was read
    throw error;
  }
}

async function syncFolder(path: string): Promise<void> {
  const folder = await open(path, O_RDONLY);
  try {
    await folder.sync();
  } finally {
    await folder.close();
  }
}

async function remove(path: string): Promise<void> {
  await unlink(path).catch((error: unknown) => {
    if (errorCode(error) !== "ENOENT") throw error;
  });
}

function errorCode(error: unknown): string | undefined {
  const code = error instanceof Error ? (error as { code?: unknown }).code : undefined;
  return typeof code === "string" ? code : undefined;
}

function invalidKey(what: string): SagaboxError<"CLAIM_INVALID"> {
  return new SagaboxError("CLAIM_INVALID", `The file store refuses a path outside of its folder: ${what}.`);
}
