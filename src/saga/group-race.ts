import type { SagaState } from "./state.ts";

/** Whether another member of an `any` group has won, so that this step is not needed. */
export function hasLostRace({ choices }: SagaState, place: string): boolean {
  const [path = "", round] = place.split("@");
  const [group = "", member] = path.split(".");
  if (member === undefined) return false;
  const winner = choices[round === undefined ? group : `${group}@${round}`];
  return winner !== undefined && winner !== null && winner !== place;
}
