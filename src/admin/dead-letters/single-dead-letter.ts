import type { By } from "../../audit/index.ts";
import {
  discardDeadLetter,
  listDeadLetters,
  replayDeadLetter,
  type DeadLetter,
  type DeadLetterFilter,
  type DeadLetterSummary,
  type ReplayedDeadLetter,
} from "../../dead-letter/index.ts";
import type { DeadLetterAdmin } from "./dead-letter-admin.ts";

/** Letters one by one, the newest first. */
export function findDeadLetters(
  { store }: DeadLetterAdmin,
  filter?: DeadLetterFilter,
): Promise<readonly DeadLetterSummary[]> {
  return listDeadLetters(store, filter);
}

/** Puts one letter's message back to where it failed, and tells whoever works there. */
export async function replayAndWake(
  { store, wake }: DeadLetterAdmin,
  id: string,
  by: By,
): Promise<ReplayedDeadLetter> {
  const replayed = await replayDeadLetter(store, id, by);
  await wake([replayed.lane]);
  return replayed;
}

/** Closes one letter for good. What stood behind it in its key goes on. */
export async function discardAndWake(
  { store, wake }: DeadLetterAdmin,
  id: string,
  by: By,
): Promise<DeadLetter> {
  const letter = await discardDeadLetter(store, id, by);
  if (letter.held !== null) await wake([letter.held.lane]);
  return letter;
}
