import { attachmentsIn } from "../message/index.ts";
import { textArray, type Queryable } from "../storage/index.ts";
import type { SagaInput } from "./input.ts";
import { letterText } from "./letter.ts";
import type { PersonSeal } from "./sealing.ts";
import type { SagaStatements } from "./statements.ts";

export interface Posted {
  readonly sagaId: string;
  readonly id: string;
  readonly cause: string;
  readonly input: SagaInput;
  readonly seal: PersonSeal | undefined;
}

/** Leaves something for an instance, with a claim on whatever is attached to it. False when there is no such instance. */
export async function postLetter(
  sql: SagaStatements,
  tx: Queryable,
  { sagaId, id, cause, input, seal }: Posted,
): Promise<boolean> {
  const { rows } = await tx.run(sql.post, [sagaId, id, cause, letterText(seal, id, input)]);
  const keys = rows.length === 0 ? [] : attachmentsIn(JSON.stringify(input));
  if (keys.length > 0) {
    await tx.run(sql.holdAttached, [sagaId, textArray(keys.map(({ $attachment: { key } }) => key))]);
  }
  return rows.length > 0;
}
