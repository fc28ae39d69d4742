import { SagaboxError } from "../errors/index.ts";
import { isStoreId } from "../message/index.ts";
import { rejectUnknownKeys } from "../options/index.ts";
import { quoteSchema, sqlState, toArrayLiteral, type Database, type Queryable } from "../storage/index.ts";
import {
  blobMissing,
  storeFull,
  storeUnavailable,
  type BlobHome,
  type BlobPage,
  type LocalBlobStore,
} from "./blob-store.ts";
import { resizeChunks } from "./bytes.ts";
import { chunkStatements } from "./statements.ts";

export interface PostgresStoreOptions {
  /** Default "postgres". */
  readonly id?: string;
}

const CHUNK_BYTES = 262_144;
/** The number of chunks that one statement reads. */
const CHUNKS_PER_READ = 4;
const PAGE = 1_000;
const DISK_FULL = "53100";

/** Stores blobs in the bus's own database, in the transaction of the message. Needs no other service. */
export function postgresStore(options: PostgresStoreOptions = {}): LocalBlobStore {
  rejectUnknownKeys("postgresStore", options, ["id"]);
  return new PostgresStore(checkStoreId("postgresStore.id", options.id ?? "postgres"));
}

class PostgresStore implements LocalBlobStore {
  readonly id: string;
  #database: Database | undefined;
  #sql = chunkStatements("");

  constructor(id: string) {
    this.id = id;
  }

  attach({ database, schema }: BlobHome): void {
    this.#database = database;
    this.#sql = chunkStatements(quoteSchema(schema));
  }

  put(key: string, bytes: AsyncIterable<Uint8Array>): Promise<void> {
    return this.putIn(this.#home, key, bytes);
  }

  async putIn(tx: Queryable, key: string, bytes: AsyncIterable<Uint8Array>): Promise<void> {
    let n = 0;
    for await (const piece of resizeChunks(bytes, CHUNK_BYTES)) {
      await tx.run(this.#sql.write, [key, n, piece.toString("base64")]).catch((error: unknown) => {
        throw sqlState(error) === DISK_FULL ? storeFull(this.id, error) : error;
      });
      n += 1;
    }
  }

  async get(key: string): Promise<AsyncIterable<Uint8Array>> {
    const first = await this.#read(key, 0);
    if (first.length === 0) throw blobMissing(key);
    return this.#rest(key, first);
  }

  async delete(keys: readonly string[]): Promise<void> {
    await this.#home.run(this.#sql.remove, [toArrayLiteral(keys)]);
  }

  async list(prefix: string, cursor: string = prefix): Promise<BlobPage> {
    const params = [cursor, `${prefix}~`, PAGE];
    const { rows } = await this.#home.run<{ key: string; stored_ms: number }>(this.#sql.list, params);
    const blobs = rows.map(({ key, stored_ms: ms }) => ({ key, storedAt: new Date(ms) }));
    return { blobs, next: rows.length < PAGE ? undefined : rows.at(-1)?.key };
  }

  // Reads a few chunks per statement and releases the connection in between, so that a slow reader holds none.
  async *#rest(key: string, first: readonly Buffer[]): AsyncGenerator<Uint8Array> {
    let read = 0;
    for (let pieces = first; pieces.length > 0;) {
      yield* pieces;
      read += pieces.length;
      pieces = pieces.length < CHUNKS_PER_READ ? [] : await this.#read(key, read);
    }
  }

  async #read(key: string, from: number): Promise<Buffer[]> {
    const { rows } = await this.#home.run<{ bytes: string }>(this.#sql.read, [key, from, CHUNKS_PER_READ]);
    return rows.map(({ bytes }) => Buffer.from(bytes, "base64"));
  }

  get #home(): Database {
    if (this.#database !== undefined) return this.#database;
    throw storeUnavailable(this.id, "it is not attached to a bus yet.");
  }
}

export function checkStoreId(name: string, id: unknown): string {
  if (isStoreId(id)) return id;
  throw new SagaboxError(
    "OPTIONS_INVALID",
    `${name} must have 1 to 63 lower case letters, digits or dashes: it is the store's name in references.`,
  );
}
