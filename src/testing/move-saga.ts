import type { Json } from "../message/index.ts";
import {
  keyUnavailable,
  decryptText,
  encryptText,
  findCipher,
  type SagaState,
  type SagaVault,
} from "../saga/index.ts";
import type { Queryable } from "../storage/index.ts";
import { shiftState } from "./shift-times.ts";

/** An open saga as it was locked. */
export interface OpenSaga {
  readonly id: string;
  readonly version: number;
  readonly state: string;
}

export interface ShiftedSaga {
  readonly id: string;
  readonly state: Json;
}

/**
 * The state it gets with its next version, by which it is sealed where it is about a person. Undefined when that
 * person was erased: nobody can read it any more, and it waits for nothing.
 */
export async function shiftSaga(
  vault: SagaVault | undefined,
  { id, version, state }: OpenSaga,
  byMs: number,
  tx: Queryable,
): Promise<ShiftedSaga | undefined> {
  const seal = await findCipher(vault, state, tx);
  if (seal === "sealed") throw keyUnavailable(id);
  if (seal === "erased") return undefined;
  const known = JSON.parse(decryptText(seal, state, id, ["state", version])) as SagaState;
  const text = encryptText(seal, JSON.stringify(shiftState(known, byMs)), id, ["state", version + 1]);
  return { id, state: JSON.parse(text ?? "null") as Json };
}
