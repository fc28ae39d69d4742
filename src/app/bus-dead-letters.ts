import { actingAs, type Acting } from "../audit/index.ts";
import {
  discardDeadLetter,
  listDeadLetters,
  replayDeadLetter,
  showDeadLetter,
  type DeadLetterStore,
} from "../dead-letter/index.ts";
import type { WakeUp } from "../lanes/index.ts";
import { rejectUnknownKeys } from "../options/index.ts";
import { explainPostgresError, quotedSchema } from "../storage/index.ts";

type DeadLetterFilter = Parameters<typeof listDeadLetters>[1];

export type BusDeadLetters = ReturnType<typeof busDeadLetters>;

/** Looks at what was given up, and lets people decide about it. */
export function busDeadLetters({
  deadLetters,
  wakeUp,
  settings,
}: {
  readonly deadLetters: DeadLetterStore;
  readonly wakeUp: WakeUp;
  readonly settings: { readonly service: string; readonly schema: string };
}) {
  const by = (where: string, acting: Acting) => {
    rejectUnknownKeys(where, acting, ["actor", "reason"]);
    return actingAs(where, acting, settings.service);
  };
  const explained = <T>(work: Promise<T>): Promise<T> =>
    work.catch((error: unknown) => {
      throw explainPostgresError(error, quotedSchema(settings.schema), "operator");
    });
  return {
    list: (filter: DeadLetterFilter = {}) => explained(listDeadLetters(deadLetters, filter)),
    show: (id: string) => explained(showDeadLetter(deadLetters, id)),
    /** Written to the audit log with who and why; without them, with the name of the service. */
    replay: async (id: string, acting: Acting = {}) => {
      const replayed = await explained(replayDeadLetter(deadLetters, id, by("deadLetters.replay", acting)));
      wakeUp.changed([replayed.lane]);
      return replayed;
    },
    discard: async (id: string, acting: Acting = {}) => {
      const letter = await explained(discardDeadLetter(deadLetters, id, by("deadLetters.discard", acting)));
      if (letter.held !== null) wakeUp.changed([letter.held.lane]);
      return letter;
    },
  };
}
