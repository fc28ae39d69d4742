import { textArray } from "../storage/index.ts";
import type { PrivacyEngine } from "./engine.ts";
import { erasures, proofHolds, type Erasure } from "./erasure-log.ts";

export interface Reapplied {
  readonly erasures: number;
  /** Keys that a restored backup had brought back. */
  readonly keysDestroyed: number;
  /** Lines whose proof does not hold: nothing was done for them. */
  readonly refused: number;
}

/**
 * Destroys again whatever a restored backup brought back: by the log in the database, or by a list of its lines that
 * was kept elsewhere, for a backup that is older than they are.
 */
export async function reapply(
  engine: PrivacyEngine,
  list: AsyncIterable<Erasure> | Iterable<Erasure> = erasures(engine),
): Promise<Reapplied> {
  const { database, sql } = engine;
  const total = { erasures: 0, keysDestroyed: 0, refused: 0 };
  for await (const erasure of list) {
    if (!proofHolds(engine, erasure)) {
      total.refused += 1;
      continue;
    }
    const { subject, erasedAt, reason, actor, keyIds, proof } = erasure;
    const { rows } = await database.run(sql.reapply, [subject, erasedAt, textArray(keyIds)]);
    await database.run(sql.relog, [subject, erasedAt, reason, actor, textArray(keyIds), proof]);
    engine.cache.forget(subject);
    total.erasures += 1;
    total.keysDestroyed += rows.length;
  }
  return total;
}
