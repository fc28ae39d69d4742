import type { PrivacyEngine } from "./engine.ts";

export interface PrivacyStatus {
  /** The key that wraps new data keys. */
  readonly currentKey: string;
  /** How many data keys each key wraps. */
  readonly keys: Readonly<Record<string, number>>;
  readonly destroyed: number;
  readonly erasures: number;
  /** Erasures whose last traces are still to be removed, because a transaction that was open then still is. */
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
