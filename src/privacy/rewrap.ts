import { toArrayLiteral } from "../storage/index.ts";
import { keysAuditEntry, type OptionalActionReason } from "./action-reason.ts";
import type { PrivacyEngine } from "./engine.ts";
import type { KeyRow } from "./subject-keys.ts";

export interface RewrapOptions extends OptionalActionReason {
  /** Stops between two batches; what was rewrapped stays so, and the next call goes on. */
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: RewrapResult) => void;
}

export interface RewrapResult {
  readonly rewrapped: number;
  /** Data keys that an older key still wraps. At zero, the older ones may leave the ring. */
  readonly left: number;
}

const BATCH = 200;

/** Wraps every data key with the current key. Nothing that was sealed is touched. */
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
    const lot = byKek.get(again.keyId) ?? { ids: [], old: [], wrapped: [] };
    lot.ids.push(keyId);
    lot.old.push(wrapped);
    lot.wrapped.push(Buffer.from(again.wrapped).toString("base64"));
    byKek.set(again.keyId, lot);
  }
  for (const [kekId, { ids, old, wrapped }] of byKek) {
    const params = [toArrayLiteral(ids), toArrayLiteral(old), toArrayLiteral(wrapped), kekId];
    changed += (await database.run(sql.rewrap, params)).rowCount;
  }
  return changed;
}
