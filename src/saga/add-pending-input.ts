import { findAttachments } from "../message/index.ts";
import { toArrayLiteral, type Queryable } from "../storage/index.ts";
import type { SagaInput } from "./input.ts";
import { encodePendingInput } from "./pending-input.ts";
import type { SubjectCipher } from "./subject-cipher.ts";
import type { SagaStatements } from "./statements.ts";

export interface NewPendingInput {
  readonly sagaId: string;
  readonly id: string;
  readonly cause: string;
  readonly input: SagaInput;
  readonly seal: SubjectCipher | undefined;
}

/** Leaves something for an instance, with a claim on whatever is attached to it. False when there is no such instance. */
export async function addPendingInput(
  sql: SagaStatements,
  tx: Queryable,
  { sagaId, id, cause, input, seal }: NewPendingInput,
): Promise<boolean> {
  const { rows } = await tx.run(sql.post, [sagaId, id, cause, encodePendingInput(seal, id, input)]);
  const keys = rows.length === 0 ? [] : findAttachments(JSON.stringify(input));
  if (keys.length > 0) {
    await tx.run(sql.holdAttached, [sagaId, toArrayLiteral(keys.map(({ $attachment: { key } }) => key))]);
  }
  return rows.length > 0;
}
