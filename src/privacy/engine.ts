import { AuditWriter } from "../audit/index.ts";
import { quoteSchema, type Database } from "../storage/index.ts";
import type { Clock } from "../runtime/index.ts";
import { BlindIndex } from "./blind-index.ts";
import { IndexGuard } from "./index-guard.ts";
import { KeyCache } from "./key-cache.ts";
import type { PrivacySettings } from "./options.ts";
import { privacyStatements, type PrivacyStatements } from "./statements.ts";
import { SubjectKeys } from "./subject-keys.ts";

/** What everything about persons needs; one per process. */
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

/** Undefined where there are no keys. */
export function createPrivacyEngine(options: PrivacyEngineOptions): PrivacyEngine | undefined {
  const { database, settings, clock } = options;
  if (settings.keys === undefined) return undefined;
  const { wrapper, indexKey } = settings.keys;
  const sql = privacyStatements(quoteSchema(options.schema));
  const { cacheTtlMs, cacheSize, wrapperMs } = settings;
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
