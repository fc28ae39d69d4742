import {
  buryLive,
  discardLetters,
  editLetter,
  letterAdmin,
  letterGroups,
  planReplay,
  stagedReplay,
  type BuryOptions,
  type DiscardOptions,
  type GroupFilter,
  type ReplayFilter,
  type StagedReplayOptions,
} from "../admin/index.ts";
import { actingAs, type Acting } from "../audit/index.ts";
import {
  discardDeadLetter,
  listDeadLetters,
  replayDeadLetter,
  showDeadLetter,
  type DeadLetterStore,
} from "../dead-letter/index.ts";
import type { HandlerRegistry } from "../inbox/index.ts";
import type { WakeUp } from "../lanes/index.ts";
import type { AnyContract } from "../message/index.ts";
import { rejectUnknownKeys } from "../options/index.ts";
import { explainPostgresError, quotedSchema } from "../storage/index.ts";

type DeadLetterFilter = Parameters<typeof listDeadLetters>[1];

export type BusDeadLetters = ReturnType<typeof busDeadLetters>;

interface Needed {
  readonly deadLetters: DeadLetterStore;
  readonly wakeUp: WakeUp;
  readonly settings: { readonly service: string; readonly schema: string };
}

/** Looks at what was given up, and lets people decide about it. */
export function busDeadLetters(
  { deadLetters, wakeUp, settings }: Needed,
  registry: Pick<HandlerRegistry, "consumers">,
) {
  const admin = letterAdmin(deadLetters.database, settings.schema);
  const by = (where: string, acting: Acting) => {
    rejectUnknownKeys(where, acting, ["actor", "reason"]);
    return actingAs(where, acting, settings.service);
  };
  const explained = <T>(work: Promise<T>): Promise<T> =>
    work.catch((error: unknown) => {
      throw explainPostgresError(error, quotedSchema(settings.schema), "operator");
    });
  const contracts = (): readonly { readonly consumer: string; readonly contract: AnyContract }[] =>
    registry
      .consumers()
      .flatMap(({ name, handlers }) =>
        [...handlers.values()].map(({ contract }) => ({ consumer: name, contract })),
      );
  return {
    list: (filter: DeadLetterFilter = {}) => explained(listDeadLetters(deadLetters, filter)),
    show: (id: string) => explained(showDeadLetter(deadLetters, id)),
    /** Open letters by their cause. */
    groups: (filter: GroupFilter = {}) => explained(letterGroups(admin, filter)),
    /** Written to the audit log with who and why; without them, with the name of the service. */
    replay: async (id: string, acting: Acting = {}) => {
      const replayed = await explained(replayDeadLetter(deadLetters, id, by("deadLetters.replay", acting)));
      wakeUp.changed([replayed.lane]);
      return replayed;
    },
    /** What `replayAll` would do. */
    planReplay: (filter: ReplayFilter, pace: Pick<StagedReplayOptions, "rate" | "canary"> = {}) =>
      explained(planReplay(admin, filter, pace)),
    /** Cause by cause, a few first, then more and more; a cause that shows itself again stops its group. */
    replayAll: (filter: ReplayFilter, options: StagedReplayOptions) =>
      explained(stagedReplay(admin, filter, options)),
    /** Replays one letter with other data, held to the contract of its handler here. */
    edit: (
      id: string,
      options: { readonly data: string; readonly actor: string; readonly reason: string },
    ) => {
      const contractOf = (consumer: string | null, type: string): AnyContract | undefined =>
        contracts().find((one) => one.contract.name === type && (consumer ?? one.consumer) === one.consumer)
          ?.contract;
      return explained(editLetter(admin, id, { ...options, contractOf }));
    },
    discard: async (id: string, acting: Acting = {}) => {
      const letter = await explained(discardDeadLetter(deadLetters, id, by("deadLetters.discard", acting)));
      if (letter.held !== null) wakeUp.changed([letter.held.lane]);
      return letter;
    },
    discardAll: (filter: ReplayFilter, options: DiscardOptions) =>
      explained(discardLetters(admin, filter, options)),
    /** Puts a message that still waits among the dead letters. */
    bury: (messageId: string, options: BuryOptions) => explained(buryLive(admin, messageId, options)),
    /** Every contract that has a handler here, with whose it is. */
    contracts,
  };
}
