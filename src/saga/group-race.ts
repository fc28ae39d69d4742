import type { SagaState } from "./state.ts";

/** Another one of its group was first, so that nobody needs it. */
export function hasLostRace({ choices }: SagaState, place: string): boolean {
  const [path = "", round] = place.split("@");
  const [group = "", member] = path.split(".");
  if (member === undefined) return false;
  const winner = choices[round === undefined ? group : `${group}@${round}`];
  return winner !== undefined && winner !== null && winner !== place;
}
