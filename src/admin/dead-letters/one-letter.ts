import type { By } from "../../audit/index.ts";
import {
  discardDeadLetter,
  listDeadLetters,
  replayDeadLetter,
  type DeadLetter,
  type DeadLetterFilter,
  type DeadLetterSummary,
  type Replayed,
} from "../../dead-letter/index.ts";
import type { LetterAdmin } from "./letter-admin.ts";

/** Letters one by one, the newest first. */
export function listLetters(
  { store }: LetterAdmin,
  filter?: DeadLetterFilter,
): Promise<readonly DeadLetterSummary[]> {
  return listDeadLetters(store, filter);
}

/** Puts one letter's message back to where it failed, and tells whoever works there. */
export async function replayLetter({ store, wake }: LetterAdmin, id: string, by: By): Promise<Replayed> {
  const replayed = await replayDeadLetter(store, id, by);
  await wake([replayed.lane]);
  return replayed;
}

/** Closes one letter for good. What stood behind it in its key goes on. */
export async function discardLetter({ store, wake }: LetterAdmin, id: string, by: By): Promise<DeadLetter> {
  const letter = await discardDeadLetter(store, id, by);
  if (letter.held !== null) await wake([letter.held.lane]);
  return letter;
}
