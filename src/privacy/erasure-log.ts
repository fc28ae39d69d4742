import { createHmac, timingSafeEqual } from "node:crypto";
import type { StandardSchemaV1 } from "@standard-schema/spec";
import { event } from "../message/index.ts";
import { type Queryable, toArrayLiteral } from "../storage/index.ts";
import type { PrivacyEngine } from "./engine.ts";

/** One entry of the erasure log. Store a copy outside of the database, for `reapply` after a restore of an old backup. */
export interface Erasure {
  readonly id: string;
  /** The keyed hash of the data subject. */
  readonly subject: string;
  readonly erasedAt: string;
  readonly reason: string;
  readonly actor: string;
  readonly keyIds: readonly string[];
  /** A keyed hash of all fields except the id. It proves that the writer had the key of blind indexes. */
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

/** Writes a log entry and resolves with its id. */
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

/** An erasure whose sweep is not complete. */
export interface UnsweptErasure {
  readonly erasure: Erasure;
  /** True if all transactions that were open during the erasure have ended. */
  readonly over: boolean;
  /** The keys whose messages were not scrubbed yet. */
  readonly toScrub: readonly string[];
}

/** Locks an erasure until the transaction ends. Returns undefined if its sweep is complete. */
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

/** Lists the erasure log, oldest entry first. */
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

/** The data of `SubjectErased`. It does not contain the subject's own id. */
export type ErasedSubject = {
  /** The keyed hash of the data subject. Services with the same key of blind indexes can compute it. */
  readonly subject: string;
  /** The ids of the destroyed keys. Values encrypted with a key contain its id. */
  readonly keyIds: readonly string[];
  readonly erasedAt: string;
};

const schema: StandardSchemaV1<ErasedSubject, ErasedSubject> = {
  "~standard": {
    version: 1,
    vendor: "sagabox",
    validate: (value) =>
      isErasedSubject(value) ? { value } : { issues: [{ message: "this is not an erasure" }] },
  },
};

function isErasedSubject(value: unknown): value is ErasedSubject {
  if (typeof value !== "object" || value === null) return false;
  const { subject, keyIds, erasedAt } = value as Record<string, unknown>;
  return (
    typeof subject === "string" &&
    typeof erasedAt === "string" &&
    Array.isArray(keyIds) &&
    keyIds.every((id) => typeof id === "string")
  );
}

/** Published in the transaction of each erasure, so that other services can delete their data about the subject. */
export const SubjectErased = event("sagabox.privacy.subject-erased", { schema });
