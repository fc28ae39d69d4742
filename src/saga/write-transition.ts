import { SagaboxError } from "../errors/index.ts";
import type { Queryable } from "../storage/index.ts";
import { insertParams, type Birth, type LoadedInstance } from "./saga-store.ts";
import type { SagaStatements } from "./statements.ts";
import { toJsonText, type Transition } from "./transition.ts";

interface WrittenRow {
  readonly id: string;
  readonly has_input?: boolean;
}

/** Saves a transition. Resolves with whether a new instance has pending input. Throws SAGA_CONFLICT on a stale version. */
export async function writeTransition(
  sql: SagaStatements,
  tx: Queryable,
  before: LoadedInstance,
  transition: Transition,
  birth: Birth | undefined,
): Promise<boolean> {
  const { id, type, key } = before;
  if (birth === undefined) {
    const { rows } = await tx.run(sql.save, [`[${toJsonText(transition)}]`]);
    if (rows.length === 0) throw conflict(id);
    return false;
  }
  const insert = transition.plain.incident !== undefined ? sql.insertFailed : sql.insert;
  const { rows } = await tx.run<WrittenRow>(insert, insertParams(before, birth, transition));
  if (rows[0] === undefined) throw conflict(id);
  if (rows[0].has_input !== true) return false;
  await tx.run(sql.collect, [id, type, key]);
  return true;
}

export function conflict(id: string): SagaboxError {
  return new SagaboxError("SAGA_CONFLICT", `Saga ${id} was changed by another transaction at the same time.`);
}
