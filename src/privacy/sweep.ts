import { textArray } from "../storage/index.ts";
import type { PrivacyEngine } from "./engine.ts";
import { proofOf, unsweptErasures, type Erasure } from "./erasure-log.ts";

/** How many rows lost what was written in clear about the person's messages. */
export interface Scrubbed {
  readonly deadLetters: number;
  readonly results: number;
}

interface Swept {
  readonly swept: boolean;
  readonly scrubbed: Scrubbed;
}

/**
 * What follows an erasure: keys that transactions open at the time made are destroyed once they are seen, and texts
 * about the person's messages are removed. May be done again at any time, by any process.
 */
export async function sweepErasure(engine: PrivacyEngine, erasure: Erasure): Promise<Swept> {
  const { database, sql } = engine;
  const late = await database.run<{ key_id: string }>(sql.destroyLate, [erasure.id]);
  if (late.rows.length > 0) engine.cache.forget(erasure.subject);
  const keyIds = [...new Set([...erasure.keyIds, ...late.rows.map(({ key_id }) => key_id)])].sort();
  const scrubbed = await scrub(engine, keyIds);
  const proof = proofOf(engine, { ...erasure, keyIds });
  const params = [erasure.id, textArray(keyIds), proof, JSON.stringify(scrubbed)];
  const { rows } = await database.run<{ done: boolean }>(sql.swept, params);
  return { swept: rows[0]?.done === true, scrubbed };
}

/** Goes on with every erasure that is not swept. Resolves with how many are left. */
export async function sweepAll(engine: PrivacyEngine): Promise<number> {
  let left = 0;
  for (const erasure of await unsweptErasures(engine)) {
    if (!(await sweepErasure(engine, erasure)).swept) left += 1;
  }
  return left;
}

/** Removes texts about messages that were sealed with these keys. Also for services that heard of an erasure elsewhere. */
export async function scrub(
  { database, sql }: Pick<PrivacyEngine, "database" | "sql">,
  keyIds: readonly string[],
): Promise<Scrubbed> {
  if (keyIds.length === 0) return { deadLetters: 0, results: 0 };
  const ids = textArray(keyIds);
  const deadLetters = await database.run(sql.scrubDeadLetters, [ids]);
  const results = await database.run(sql.scrubResults, [ids]);
  return { deadLetters: deadLetters.rowCount, results: results.rowCount };
}
