import { createHmac, timingSafeEqual } from "node:crypto";
import { toArrayLiteral, type Queryable } from "../storage/index.ts";
import type { PrivacyEngine } from "./engine.ts";

/** One line of the erasure log. Kept outside, a list of them makes up for whatever a backup brings back. */
export interface Erasure {
  readonly id: string;
  /** The keyed hash of the person. */
  readonly subject: string;
  readonly erasedAt: string;
  readonly reason: string;
  readonly actor: string;
  readonly keyIds: readonly string[];
  /** A keyed hash over all of the above but the id: only who has the key of blind indexes can have written it. */
  readonly proof: string;
}

interface ErasureRow {
  readonly id: string;
  readonly subject: string;
  readonly erased_at: string;
  readonly reason: string;
  readonly actor: string;
  readonly key_ids: string;
  readonly proof: string;
}

type ProvenErasure = Omit<Erasure, "id" | "proof">;

export function computeProof({ index }: Pick<PrivacyEngine, "index">, erasure: ProvenErasure): string {
  const { subject, erasedAt, reason, actor, keyIds } = erasure;
  return index.compute(
    JSON.stringify([subject, erasedAt, reason, actor, [...keyIds].sort()]),
    "sagabox.erasure",
  );
}

export function isProofValid(engine: Pick<PrivacyEngine, "index">, erasure: Erasure): boolean {
  const digest = (text: string): Buffer => createHmac("sha256", "compare").update(text).digest();
  return timingSafeEqual(digest(computeProof(engine, erasure)), digest(erasure.proof));
}

/** Writes the line; resolves with its id. */
export async function logErasure(
  engine: PrivacyEngine,
  tx: Queryable,
  erasure: Omit<Erasure, "id">,
): Promise<string> {
  const { subject, erasedAt, reason, actor, keyIds, proof } = erasure;
  const params = [subject, erasedAt, reason, actor, toArrayLiteral(keyIds), proof];
  return (await tx.run<{ id: string }>(engine.sql.log, params)).rows[0]?.id ?? "";
}

export async function findLastErasure(
  engine: PrivacyEngine,
  tx: Queryable,
  subject: string,
): Promise<Erasure | undefined> {
  const { rows } = await tx.run<ErasureRow>(engine.sql.lastErasure, [subject]);
  return rows.map(toErasure)[0];
}

/** A line that is not swept, and what is to be done for it. */
export interface UnsweptErasure {
  readonly erasure: Erasure;
  /** Every transaction that was open at the erasure has ended. */
  readonly over: boolean;
  /** Keys whose messages were not looked for yet. */
  readonly toScrub: readonly string[];
}

/** Locks the line until the transaction ends; undefined when it is swept. */
export async function lockErasure(
  { sql }: PrivacyEngine,
  tx: Queryable,
  id: string,
): Promise<UnsweptErasure | undefined> {
  const { rows } = await tx.run<ErasureRow & { over: boolean; to_scrub: string }>(sql.lockErasure, [id]);
  return rows.map((row) => ({
    erasure: toErasure(row),
    over: row.over,
    toScrub: JSON.parse(row.to_scrub) as string[],
  }))[0];
}

/** The whole log, oldest first. */
export async function* listErasures(engine: PrivacyEngine): AsyncGenerator<Erasure, void, undefined> {
  let after = "0";
  for (;;) {
    const { rows } = await engine.database.run<ErasureRow>(engine.sql.erasuresAfter, [after, 500]);
    yield* rows.map(toErasure);
    const last = rows.at(-1);
    if (last === undefined) return;
    after = last.id;
  }
}

function toErasure(row: ErasureRow): Erasure {
  const { id, subject, reason, actor, proof, erased_at: erasedAt } = row;
  return { id, subject, erasedAt, reason, actor, keyIds: JSON.parse(row.key_ids) as string[], proof };
}
