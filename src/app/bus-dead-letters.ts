import {
  discardDeadLetter,
  listDeadLetters,
  replayDeadLetter,
  showDeadLetter,
  type DeadLetterStore,
} from "../dead-letter/index.ts";
import type { WakeUp } from "../lanes/index.ts";

type DeadLetterFilter = Parameters<typeof listDeadLetters>[1];

export type BusDeadLetters = ReturnType<typeof busDeadLetters>;

/** Looks at what was given up, and lets people decide about it. */
export function busDeadLetters({
  deadLetters,
  wakeUp,
}: {
  readonly deadLetters: DeadLetterStore;
  readonly wakeUp: WakeUp;
}) {
  return {
    list: (filter: DeadLetterFilter = {}) => listDeadLetters(deadLetters, filter),
    show: (id: string) => showDeadLetter(deadLetters, id),
    replay: async (id: string) => {
      const replayed = await replayDeadLetter(deadLetters, id);
      wakeUp.changed([replayed.lane]);
      return replayed;
    },
    discard: async (id: string) => {
      const letter = await discardDeadLetter(deadLetters, id);
      if (letter.held !== null) wakeUp.changed([letter.held.lane]);
      return letter;
    },
  };
}
