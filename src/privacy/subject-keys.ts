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
  /** Whether the reading transaction inserted the row, and may still roll it back. */
  readonly own: boolean;
  /** Whether the row was read from a current snapshot. An older one may show a key that was destroyed since. */
  readonly fresh: boolean;
}

/** The result of a search for a key: the key, "erased" if it was destroyed, "unknown" if this database does not have it. */
export type FoundKey = DataKey | "erased" | "unknown";

/** Creates, reads and unwraps the data keys of subjects. Unwrapped keys stay in memory only for a short time. */
export class SubjectKeys {
  readonly #parts: SubjectKeysParts;
  readonly #loading = new Map<string, Promise<FoundKey>>();

  constructor(parts: SubjectKeysParts) {
    this.#parts = parts;
  }

  /**
   * Finds or creates the key for new data of a subject. With `tx`, the key is read and inserted in that transaction, and
   * no other connection is needed. The method waits for no lock.
   */
  async getEncryptionKey(subject: string, tx?: Queryable): Promise<DataKey> {
    const { cache, database, sql } = this.#parts;
    const cached = cache.getCurrent(subject);
    if (cached !== undefined) return cached;
    const readAtMs = cache.nowMs();
    const {
      rows: [row],
    } = await (tx ?? database).run<SeenKeyRow>(sql.keyOf, [subject]);
    if (row === undefined) return this.#createKey(subject, tx ?? database, readAtMs);
    const seenRow = { ...row, fresh: row.fresh || tx === undefined };
    const key = cache.get(row.key_id) ?? (await this.#unwrap(seenRow, readAtMs));
    if (key === "erased") throw decryptionFailed();
    if (seenRow.fresh && !seenRow.own) cache.makeCurrent(key);
    return key;
  }

  /** Finds a key by its id. Concurrent calls without `tx` share one query. */
  async find(keyId: string, tx?: Queryable): Promise<FoundKey> {
    const cached = this.#parts.cache.get(keyId);
    if (cached !== undefined) return cached;
    if (tx !== undefined) return this.#load(keyId, tx);
    const loading = this.#loading.get(keyId) ?? this.#load(keyId);
    this.#loading.set(keyId, loading);
    try {
      return await loading;
    } finally {
      this.#loading.delete(keyId);
    }
  }

  async #load(keyId: string, tx?: Queryable): Promise<FoundKey> {
    const { cache, database, sql } = this.#parts;
    const readAtMs = cache.nowMs();
    const { rows } = await (tx ?? database).run<SeenKeyRow>(sql.keys, [toArrayLiteral([keyId])]);
    const [row] = rows;
    if (row === undefined) return "unknown";
    return this.#unwrap({ ...row, fresh: row.fresh || tx === undefined }, readAtMs);
  }

  async #createKey(subject: string, database: Queryable, readAtMs: number): Promise<DataKey> {
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

  // Throws PRIVACY_KEYS_UNAVAILABLE if the key wrapper fails or exceeds its timeout.
  async #callWrapper<T>(call: () => Promise<T>): Promise<T> {
    const { wrapperMs } = this.#parts;
    try {
      return await withDeadline(call(), wrapperMs, () => {
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

const BATCH_SIZE = 200;

/** Wraps all data keys with the current key. Encrypted data is not changed. */
export function rewrap(engine: PrivacyEngine, options: RewrapOptions = {}): Promise<RewrapResult> {
  const { audit, database } = engine;
  return audit.runAudited(database, keysAuditEntry("privacy.rewrap", options), async (note) => {
    const result = await rewrapInBatches(engine, options);
    await note(database, { after: { ...result } });
    return result;
  });
}

async function rewrapInBatches(engine: PrivacyEngine, options: RewrapOptions): Promise<RewrapResult> {
  const { database, sql, keys } = engine;
  const { signal, onProgress } = options;
  const current = await keys.currentKeyId();
  const countLeft = async (): Promise<number> =>
    (await database.run<{ left: number }>(sql.leftToRewrap, [current])).rows[0]?.left ?? 0;
  let rewrapped = 0;
  let after = "";
  while (signal?.aborted !== true) {
    const { rows } = await database.run<KeyRow>(sql.toRewrap, [current, after, BATCH_SIZE]);
    const last = rows.at(-1);
    if (last === undefined) break;
    rewrapped += await rewrapBatch(engine, rows);
    after = last.key_id;
    onProgress?.({ rewrapped, left: await countLeft() });
  }
  return { rewrapped, left: await countLeft() };
}

// Groups the keys by the key-encryption key (KEK) that wraps them now, and updates each group in one statement.
async function rewrapBatch({ database, sql, keys }: PrivacyEngine, rows: readonly KeyRow[]): Promise<number> {
  let changed = 0;
  const byKek = new Map<string, { ids: string[]; old: string[]; wrapped: string[] }>();
  for (const { key_id: keyId, subject, wrapped, kek_id: kekId } of rows) {
    if (wrapped === null || kekId === null) continue;
    const bytes = await keys.unwrap(
      { keyId, subject },
      { keyId: kekId, wrapped: Buffer.from(wrapped, "base64") },
    );
    const rewrappedKey = await keys.wrap({ keyId, subject, bytes });
    const batch = byKek.get(rewrappedKey.keyId) ?? { ids: [], old: [], wrapped: [] };
    batch.ids.push(keyId);
    batch.old.push(wrapped);
    batch.wrapped.push(Buffer.from(rewrappedKey.wrapped).toString("base64"));
    byKek.set(rewrappedKey.keyId, batch);
  }
  for (const [kekId, { ids, old, wrapped }] of byKek) {
    const params = [toArrayLiteral(ids), toArrayLiteral(old), toArrayLiteral(wrapped), kekId];
    changed += (await database.run(sql.rewrap, params)).rowCount;
  }
  return changed;
}
