import { AuditWriter } from "../audit/index.ts";
import type { Clock } from "../runtime/index.ts";
import { type Database, quoteSchema } from "../storage/index.ts";
import { BlindIndex, IndexGuard } from "./blind-index.ts";
import { KeyCache } from "./key-cache.ts";
import type { PrivacySettings } from "./options.ts";
import { privacyStatements, type PrivacyStatements } from "./statements.ts";
import { SubjectKeys } from "./subject-keys.ts";

/** Everything that encryption and erasure need. One per process. */
export interface PrivacyEngine {
  readonly database: Database;
  readonly sql: PrivacyStatements;
  readonly index: BlindIndex;
  readonly guard: IndexGuard;
  readonly audit: AuditWriter;
  readonly cache: KeyCache;
  readonly keys: SubjectKeys;
  readonly cacheTtlMs: number;
}

export interface PrivacyEngineOptions {
  readonly database: Database;
  readonly schema: string;
  readonly settings: PrivacySettings;
  readonly clock?: Clock;
}

/** Creates the engine. Returns undefined if no keys are configured. */
export function createPrivacyEngine(options: PrivacyEngineOptions): PrivacyEngine | undefined {
  const { database, settings, clock } = options;
  if (settings.keys === undefined) return undefined;
  const { wrapper, indexKey } = settings.keys;
  const sql = privacyStatements(quoteSchema(options.schema));
  const { cacheTtlMs, cacheSize, keyTimeoutMs: wrapperMs } = settings;
  const cache = new KeyCache({
    ttlMs: cacheTtlMs,
    size: cacheSize,
    ...(clock === undefined ? {} : { clock }),
  });
  const index = new BlindIndex(indexKey);
  const guard = new IndexGuard(sql, index);
  const keys = new SubjectKeys({ database, sql, wrapper, cache, wrapperMs, guard });
  return { database, sql, index, guard, audit: new AuditWriter(options.schema), cache, keys, cacheTtlMs };
}

export interface PrivacyStatus {
  /** The id of the key that wraps new data keys. */
  readonly currentKey: string;
  /** The number of data keys per wrapping key. */
  readonly keys: Readonly<Record<string, number>>;
  readonly destroyed: number;
  readonly erasures: number;
  /** Erasures whose sweep is not complete, because a transaction that was open during the erasure has not ended. */
  readonly unswept: number;
  readonly holds: number;
  readonly cacheTtlMs: number;
}

export async function readPrivacyStatus({
  database,
  sql,
  keys,
  cacheTtlMs,
}: PrivacyEngine): Promise<PrivacyStatus> {
  const counts = (await database.run<{ kek_id: string | null; count: number }>(sql.keyCounts)).rows;
  const live = counts.flatMap(({ kek_id, count }) => (kek_id === null ? [] : [[kek_id, count] as const]));
  const { rows } = await database.run<{ erasures: number; unswept: number; holds: number }>(
    sql.erasureCounts,
  );
  const { erasures = 0, unswept = 0, holds = 0 } = rows[0] ?? {};
  return {
    currentKey: await keys.currentKeyId(),
    keys: Object.fromEntries(live),
    destroyed: counts.find(({ kek_id }) => kek_id === null)?.count ?? 0,
    erasures,
    unswept,
    holds,
    cacheTtlMs,
  };
}
