import { SUBJECT_ERASED } from "../message/index.ts";
import { toArrayLiteral, type Statement } from "../storage/index.ts";
import type { PrivacyEngine } from "./engine.ts";
import type { Eraser } from "./eraser.ts";
import { lockErasure, computeProof, type UnsweptErasure } from "./erasure-log.ts";

/** How many rows lost what was written in clear about the person's messages. */
export interface ScrubResult {
  readonly deadLetters: number;
  readonly results: number;
  /** Of messages that are tried again, and of requests that failed. */
  readonly errors: number;
}

interface SweepResult {
  readonly swept: boolean;
  readonly scrubbed: ScrubResult;
}

export const nothingScrubbed: ScrubResult = Object.freeze({ deadLetters: 0, results: 0, errors: 0 });

/**
 * What follows an erasure: keys that transactions open at the time made are destroyed once they are seen, and texts
 * about the person's messages are removed. May be done again at any time, by any process.
 */
export async function sweepErasure(eraser: Eraser, id: string): Promise<SweepResult> {
  const { engine } = eraser;
  const found = await destroyLateKeys(eraser, id);
  if (found === undefined) return { swept: true, scrubbed: nothingScrubbed };
  const { over, toScrub, erasure } = found;
  // Whoever was handling a message then may have written about it since we looked.
  const keyIds = over ? erasure.keyIds : toScrub;
  const scrubbed = await scrub(engine, keyIds);
  if (over || keyIds.length > 0) {
    const { deadLetters, results, errors } = scrubbed;
    const params = [id, toArrayLiteral(keyIds), deadLetters, results, errors, over];
    await engine.database.run(engine.sql.scrubbed, params);
  }
  return { swept: over, scrubbed };
}

/** Late keys, the sagas sealed with them, the line in the log and the event have one fate. */
async function destroyLateKeys(eraser: Eraser, id: string): Promise<UnsweptErasure | undefined> {
  const { engine, transaction, announce } = eraser;
  const { sql } = engine;
  let late: readonly string[] = [];
  const found = await transaction(async (tx, publish) => {
    const line = await lockErasure(engine, tx, id);
    if (line === undefined) return undefined;
    const { subject, actor, erasedAt } = line.erasure;
    late = (await tx.run<{ key_id: string }>(sql.destroyLate, [id])).rows.map(({ key_id }) => key_id).sort();
    const keyIds = [...new Set([...line.erasure.keyIds, ...late])].sort();
    const erasure = { ...line.erasure, keyIds };
    await tx.run(sql.parkSealed, [subject, SUBJECT_ERASED, actor, toArrayLiteral(keyIds)]);
    if (late.length === 0) return line;
    await tx.run(sql.addLate, [
      id,
      toArrayLiteral(keyIds),
      computeProof(engine, erasure),
      toArrayLiteral(late),
    ]);
    await publish({ subject, keyIds: late, erasedAt });
    return { ...line, erasure, toScrub: [...line.toScrub, ...late] };
  });
  if (found !== undefined && late.length > 0) {
    engine.cache.forget(found.erasure.subject);
    announce(found.erasure.subject);
  }
  return found;
}

/** Goes on with every erasure that is not swept. Resolves with how many are left. */
export async function sweepAll(eraser: Eraser): Promise<number> {
  const { database, sql } = eraser.engine;
  let left = 0;
  for (const { id } of (await database.run<{ id: string }>(sql.unswept)).rows) {
    if (!(await sweepErasure(eraser, id)).swept) left += 1;
  }
  return left;
}

/** Removes texts about messages that were sealed with these keys. Also for services that heard of an erasure elsewhere. */
export async function scrub(
  { database, sql }: Pick<PrivacyEngine, "database" | "sql">,
  keyIds: readonly string[],
): Promise<ScrubResult> {
  if (keyIds.length === 0) return nothingScrubbed;
  const ids = toArrayLiteral(keyIds);
  const rows = async (of: Statement): Promise<number> => (await database.run(of, [ids])).rowCount;
  return {
    deadLetters: await rows(sql.scrubDeadLetters),
    results: await rows(sql.scrubResults),
    errors: (await rows(sql.scrubOutbox)) + (await rows(sql.scrubQueue)) + (await rows(sql.scrubReplies)),
  };
}
