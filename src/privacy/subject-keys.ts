import { SagaboxError } from "../errors/index.ts";
import { randomBytes, withDeadline } from "../runtime/index.ts";
import { type Queryable, toArrayLiteral } from "../storage/index.ts";
import { decryptionFailed, KEY_BYTES } from "./cipher.ts";
import type { PrivacyEngine } from "./engine.ts";
import type { IndexGuard } from "./blind-index.ts";
import type { DataKey, KeyCache } from "./key-cache.ts";
import type { KeyWrapper, WrappedKey } from "./key-ring.ts";
import { keysAuditEntry, type OptionalActionReason } from "./options.ts";
import type { PrivacyStatements } from "./statements.ts";

export interface SubjectKeysParts {
  readonly database: Queryable;
  readonly sql: PrivacyStatements;
  readonly wrapper: KeyWrapper;
  readonly cache: KeyCache;
  readonly guard: Pick<IndexGuard, "note">;
  /** Timeout of the key wrapper in milliseconds. */
  readonly wrapperMs: number;
}

export interface KeyRow {
  readonly key_id: string;
  readonly subject: string;
  readonly wrapped: string | null;
  readonly kek_id: string | null;
}

interface SeenKeyRow extends KeyRow {
  /** Inserted by the transaction that reads it. */
  readonly own: boolean;
  /** Read from a current snapshot, so that a destroyed key cannot appear in it. */
  readonly fresh: boolean;
}

/** The result of a search for a key: the key, "erased" if it was destroyed, "unknown" if this database does not have it. */
export type FoundKey = DataKey | "erased" | "unknown";

/** The data keys of subjects. A key is created on first use. Unwrapped keys stay in memory only for a short time. */
export class SubjectKeys {
  readonly #parts: SubjectKeysParts;
  readonly #loading = new Map<string, Promise<FoundKey>>();

  constructor(parts: SubjectKeysParts) {
    this.#parts = parts;
  }

  /**
   * Finds or creates the key for new data of a subject. A new key is inserted in the given transaction. The method waits
   * for no lock and, with a transaction, for no other connection.
   */
  async getEncryptionKey(subject: string, tx?: Queryable): Promise<DataKey> {
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

  /** Finds a key by its id. Concurrent calls without a transaction share one query. */
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
    "The key wrapper did not answer. The message is retried, and the failure does not count as an attempt.",
    { cause },
  );
}

export interface RewrapOptions extends OptionalActionReason {
  /** Stops between two batches. The next call continues. */
  readonly signal?: AbortSignal;
  /** Called after each batch. */
  readonly onProgress?: (progress: RewrapResult) => void;
}

export interface RewrapResult {
  readonly rewrapped: number;
  /** Data keys that are still wrapped with an older key. At zero, older keys can be removed from the ring. */
  readonly left: number;
}

const BATCH = 200;

/** Wraps all data keys with the current key. Encrypted data is not changed. */
export function rewrap(engine: PrivacyEngine, options: RewrapOptions = {}): Promise<RewrapResult> {
  const { audit, database } = engine;
  return audit.runAudited(database, keysAuditEntry("privacy.rewrap", options), async (note) => {
    const result = await rewrapEvery(engine, options);
    await note(database, { after: { ...result } });
    return result;
  });
}

async function rewrapEvery(engine: PrivacyEngine, options: RewrapOptions): Promise<RewrapResult> {
  const { database, sql, keys } = engine;
  const { signal, onProgress } = options;
  const current = await keys.currentKeyId();
  const left = async (): Promise<number> =>
    (await database.run<{ left: number }>(sql.leftToRewrap, [current])).rows[0]?.left ?? 0;
  let rewrapped = 0;
  let after = "";
  while (signal?.aborted !== true) {
    const { rows } = await database.run<KeyRow>(sql.toRewrap, [current, after, BATCH]);
    const last = rows.at(-1);
    if (last === undefined) break;
    rewrapped += await rewrapAll(engine, rows);
    after = last.key_id;
    onProgress?.({ rewrapped, left: await left() });
  }
  return { rewrapped, left: await left() };
}

async function rewrapAll({ database, sql, keys }: PrivacyEngine, rows: readonly KeyRow[]): Promise<number> {
  let changed = 0;
  const byKek = new Map<string, { ids: string[]; old: string[]; wrapped: string[] }>();
  for (const { key_id: keyId, subject, wrapped, kek_id: kekId } of rows) {
    if (wrapped === null || kekId === null) continue;
    const bytes = await keys.unwrap(
      { keyId, subject },
      { keyId: kekId, wrapped: Buffer.from(wrapped, "base64") },
    );
    const again = await keys.wrap({ keyId, subject, bytes });
    const batch = byKek.get(again.keyId) ?? { ids: [], old: [], wrapped: [] };
    batch.ids.push(keyId);
    batch.old.push(wrapped);
    batch.wrapped.push(Buffer.from(again.wrapped).toString("base64"));
    byKek.set(again.keyId, batch);
  }
  for (const [kekId, { ids, old, wrapped }] of byKek) {
    const params = [toArrayLiteral(ids), toArrayLiteral(old), toArrayLiteral(wrapped), kekId];
    changed += (await database.run(sql.rewrap, params)).rowCount;
  }
  return changed;
}
