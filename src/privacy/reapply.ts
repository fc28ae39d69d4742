import { toArrayLiteral } from "../storage/index.ts";
import { keysAuditEntry, type OptionalActionReason } from "./action-reason.ts";
import type { PrivacyEngine } from "./engine.ts";
import { listErasures, isProofValid, type Erasure } from "./erasure-log.ts";
import { scrub } from "./sweep.ts";

export interface ReapplyResult {
  readonly erasures: number;
  /** Keys that a restored backup had brought back. */
  readonly keysDestroyed: number;
  /** Lines whose proof does not hold: nothing was done for them. */
  readonly refused: number;
}

type Erasures = AsyncIterable<Erasure> | Iterable<Erasure>;

const BATCH = 500;

/**
 * Destroys again whatever a restored backup brought back: by the log in the database, or by a list of its lines that
 * was kept elsewhere, for a backup that is older than they are.
 */
export function reapply(
  engine: PrivacyEngine,
  list: Erasures = listErasures(engine),
  by: OptionalActionReason = {},
): Promise<ReapplyResult> {
  const { audit, database } = engine;
  return audit.runAudited(database, keysAuditEntry("privacy.reapply", by), async (note) => {
    await engine.guard.check(database);
    const result = await reapplyEach(engine, list);
    await note(database, { after: { ...result } });
    return result;
  });
}

async function reapplyEach(engine: PrivacyEngine, list: Erasures): Promise<ReapplyResult> {
  const { database, sql } = engine;
  const destroyed: string[] = [];
  const total = { erasures: 0, keysDestroyed: 0, refused: 0 };
  for await (const erasure of list) {
    if (!isProofValid(engine, erasure)) {
      total.refused += 1;
      continue;
    }
    const { subject, erasedAt, reason, actor, keyIds, proof } = erasure;
    const { rows } = await database.run(sql.reapply, [subject, erasedAt, toArrayLiteral(keyIds)]);
    await database.run(sql.relog, [subject, erasedAt, reason, actor, toArrayLiteral(keyIds), proof]);
    engine.cache.forget(subject);
    total.erasures += 1;
    total.keysDestroyed += rows.length;
    destroyed.push(...keyIds);
    if (destroyed.length >= BATCH) await scrub(engine, destroyed.splice(0));
  }
  // What a backup brought back was scrubbed then, and is not now.
  await scrub(engine, destroyed);
  return total;
}
