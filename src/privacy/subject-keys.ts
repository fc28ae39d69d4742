import { SagaboxError } from "../errors/index.ts";
import { randomBytes, withDeadline } from "../runtime/index.ts";
import { toArrayLiteral, type Queryable } from "../storage/index.ts";
import { KEY_BYTES } from "./cipher.ts";
import type { IndexGuard } from "./index-guard.ts";
import type { DataKey, KeyCache } from "./key-cache.ts";
import type { KeyWrapper, WrappedKey } from "./key-wrapper.ts";
import { decryptionFailed } from "./decryption-failed.ts";
import type { PrivacyStatements } from "./statements.ts";

export interface SubjectKeysParts {
  readonly database: Queryable;
  readonly sql: PrivacyStatements;
  readonly wrapper: KeyWrapper;
  readonly cache: KeyCache;
  readonly guard: Pick<IndexGuard, "note">;
  /** How long the wrapper may take. */
  readonly wrapperMs: number;
}

export interface KeyRow {
  readonly key_id: string;
  readonly subject: string;
  readonly wrapped: string | null;
  readonly kek_id: string | null;
}

interface SeenKeyRow extends KeyRow {
  /** Made by the transaction that reads it. */
  readonly own: boolean;
  /** Read as it is now, and not as an older snapshot shows it. */
  readonly fresh: boolean;
}

/** What there is of a key: itself, the certainty that it was destroyed, or nothing in this store. */
export type FoundKey = DataKey | "erased" | "unknown";

/** The data keys of persons: made on first use, found again by id, kept in clear for a short while only. */
export class SubjectKeys {
  readonly #parts: SubjectKeysParts;
  readonly #loading = new Map<string, Promise<FoundKey>>();

  constructor(parts: SubjectKeysParts) {
    this.#parts = parts;
  }

  /**
   * The key for new data of a person. One that has to be made is made in the given transaction, and lives if that
   * commits. Nothing here waits for a lock or, with a transaction, for another connection.
   */
  async forSealing(subject: string, tx?: Queryable): Promise<DataKey> {
    const { cache, database, sql } = this.#parts;
    const kept = cache.getCurrent(subject);
    if (kept !== undefined) return kept;
    const readAtMs = cache.nowMs();
    const {
      rows: [row],
    } = await (tx ?? database).run<SeenKeyRow>(sql.keyOf, [subject]);
    if (row === undefined) return this.#make(subject, tx ?? database, readAtMs);
    const seen = { ...row, fresh: row.fresh || tx === undefined };
    const key = cache.get(row.key_id) ?? (await this.#unwrap(seen, readAtMs));
    if (key === "erased") throw decryptionFailed();
    if (seen.fresh && !seen.own) cache.makeCurrent(key);
    return key;
  }

  /** The key by its id. Several that ask at once share one answer. */
  async find(keyId: string, within?: Queryable): Promise<FoundKey> {
    const kept = this.#parts.cache.get(keyId);
    if (kept !== undefined) return kept;
    if (within !== undefined) return this.#load(keyId, within);
    const loading = this.#loading.get(keyId) ?? this.#load(keyId);
    this.#loading.set(keyId, loading);
    try {
      return await loading;
    } finally {
      this.#loading.delete(keyId);
    }
  }

  async #load(keyId: string, within?: Queryable): Promise<FoundKey> {
    const { cache, database, sql } = this.#parts;
    const readAtMs = cache.nowMs();
    const { rows } = await (within ?? database).run<SeenKeyRow>(sql.keys, [toArrayLiteral([keyId])]);
    const [row] = rows;
    if (row === undefined) return "unknown";
    return this.#unwrap({ ...row, fresh: row.fresh || within === undefined }, readAtMs);
  }

  async #make(subject: string, database: Queryable, readAtMs: number): Promise<DataKey> {
    const { cache, guard, sql } = this.#parts;
    await guard.note(database);
    const keyId = Buffer.from(randomBytes(16)).toString("base64url");
    const key = { keyId, subject, bytes: randomBytes(KEY_BYTES) };
    const { keyId: kekId, wrapped } = await this.wrap(key);
    await database.run(sql.addKey, [keyId, subject, Buffer.from(wrapped).toString("base64"), kekId]);
    cache.keep(key, readAtMs);
    return key;
  }

  async #unwrap(row: SeenKeyRow, readAtMs: number): Promise<DataKey | "erased"> {
    if (row.wrapped === null || row.kek_id === null) return "erased";
    const { key_id: keyId, subject } = row;
    const bytes = await this.unwrap(
      { keyId, subject },
      { keyId: row.kek_id, wrapped: Buffer.from(row.wrapped, "base64") },
    );
    const key = { keyId, subject, bytes };
    if (row.fresh) this.#parts.cache.keep(key, readAtMs);
    return key;
  }

  wrap(key: DataKey): Promise<WrappedKey> {
    return this.#callWrapper(() => this.#parts.wrapper.wrap(key.bytes, wrapContext(key)));
  }

  async unwrap(key: Omit<DataKey, "bytes">, wrapped: WrappedKey): Promise<Uint8Array> {
    const bytes = await this.#callWrapper(() => this.#parts.wrapper.unwrap(wrapped, wrapContext(key)));
    if (bytes?.length !== KEY_BYTES) throw decryptionFailed();
    return bytes;
  }

  currentKeyId(): Promise<string> {
    return this.#callWrapper(async () => this.#parts.wrapper.currentKeyId());
  }

  async #callWrapper<T>(question: () => Promise<T>): Promise<T> {
    const { wrapperMs } = this.#parts;
    try {
      return await withDeadline(question(), wrapperMs, () => {
        throw new Error(`no answer within ${wrapperMs} ms`);
      });
    } catch (cause) {
      throw cause instanceof SagaboxError ? cause : keysUnavailable(cause);
    }
  }
}

function wrapContext({ keyId, subject }: Omit<DataKey, "bytes">): string {
  return `${keyId}.${subject}`;
}

function keysUnavailable(cause: unknown): SagaboxError {
  return new SagaboxError(
    "PRIVACY_KEYS_UNAVAILABLE",
    "Whoever holds the keys that wrap the data keys does not answer. It is tried again, and no attempt is charged.",
    { cause },
  );
}
