import { createHmac, timingSafeEqual } from "node:crypto";
import { textArray, type Queryable } from "../storage/index.ts";
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

type Proved = Omit<Erasure, "id" | "proof">;

export function proofOf({ index }: Pick<PrivacyEngine, "index">, erasure: Proved): string {
  const { subject, erasedAt, reason, actor, keyIds } = erasure;
  return index.of(JSON.stringify([subject, erasedAt, reason, actor, [...keyIds].sort()]), "sagabox.erasure");
}

export function proofHolds(engine: Pick<PrivacyEngine, "index">, erasure: Erasure): boolean {
  const digest = (text: string): Buffer => createHmac("sha256", "compare").update(text).digest();
  return timingSafeEqual(digest(proofOf(engine, erasure)), digest(erasure.proof));
}

/** Writes the line; resolves with its id. */
export async function logErasure(
  engine: PrivacyEngine,
  tx: Queryable,
  erasure: Omit<Erasure, "id">,
): Promise<string> {
  const { subject, erasedAt, reason, actor, keyIds, proof } = erasure;
  const params = [subject, erasedAt, reason, actor, textArray(keyIds), proof];
  return (await tx.run<{ id: string }>(engine.sql.log, params)).rows[0]?.id ?? "";
}

export async function lastErasure(
  engine: PrivacyEngine,
  tx: Queryable,
  subject: string,
): Promise<Erasure | undefined> {
  const { rows } = await tx.run<ErasureRow>(engine.sql.lastErasure, [subject]);
  return rows.map(erasureFrom)[0];
}

/** Those whose last traces are still to be removed; or one of them. */
export async function unsweptErasures(
  engine: PrivacyEngine,
  id: string | null = null,
): Promise<readonly Erasure[]> {
  const { rows } = await engine.database.run<ErasureRow>(engine.sql.unswept, [id]);
  return rows.map(erasureFrom);
}

/** The whole log, oldest first. */
export async function* erasures(engine: PrivacyEngine): AsyncGenerator<Erasure, void, undefined> {
  let after = "0";
  for (;;) {
    const { rows } = await engine.database.run<ErasureRow>(engine.sql.erasuresAfter, [after, 500]);
    yield* rows.map(erasureFrom);
    const last = rows.at(-1);
    if (last === undefined) return;
    after = last.id;
  }
}

function erasureFrom(row: ErasureRow): Erasure {
  const { id, subject, reason, actor, proof, erased_at: erasedAt } = row;
  return { id, subject, erasedAt, reason, actor, keyIds: JSON.parse(row.key_ids) as string[], proof };
}
