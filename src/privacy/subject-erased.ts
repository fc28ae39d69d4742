import type { StandardSchemaV1 } from "@standard-schema/spec";
import { event } from "../message/index.ts";

/** Somebody was erased: what other services need to know to drop what they keep. The person is not named. */
export type ErasedSubject = {
  /** The keyed hash of the person, for whoever has the key of blind indexes. */
  readonly subject: string;
  /** The keys that were destroyed: what was sealed with them has their ids in it. */
  readonly keyIds: readonly string[];
  readonly erasedAt: string;
};

const schema: StandardSchemaV1<ErasedSubject, ErasedSubject> = {
  "~standard": {
    version: 1,
    vendor: "sagabox",
    validate: (value) =>
      isErasedSubject(value) ? { value } : { issues: [{ message: "this tells of no erasure" }] },
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

/** Published with every erasure, in its transaction. */
export const SubjectErased = event("sagabox.privacy.subject-erased", { schema });
