import {
  buryLiveMessage,
  discardDeadLetters,
  editDeadLetter,
  createDeadLetterAdmin,
  listDeadLetterGroups,
  planReplay,
  replayInStages,
  type BuryOptions,
  type DiscardOptions,
  type GroupFilter,
  type ReplayFilter,
  type StagedReplayOptions,
} from "../admin/index.ts";
import { readActing, type Acting } from "../audit/index.ts";
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
import { explainPostgresError, quoteSchema } from "../storage/index.ts";

type DeadLetterFilter = Parameters<typeof listDeadLetters>[1];

export type BusDeadLetters = ReturnType<typeof busDeadLetters>;

interface DeadLetterParts {
  readonly deadLetters: DeadLetterStore;
  readonly wakeUp: WakeUp;
  readonly settings: { readonly service: string; readonly schema: string };
}

/** Looks at what was given up, and lets people decide about it. */
export function busDeadLetters(
  { deadLetters, wakeUp, settings }: DeadLetterParts,
  registry: Pick<HandlerRegistry, "consumers">,
) {
  const admin = createDeadLetterAdmin(deadLetters.database, settings.schema);
  const toActor = (where: string, acting: Acting) => {
    rejectUnknownKeys(where, acting, ["actor", "reason"]);
    return readActing(where, acting, settings.service);
  };
  const explainFailure = <T>(work: Promise<T>): Promise<T> =>
    work.catch((error: unknown) => {
      throw explainPostgresError(error, quoteSchema(settings.schema), "operator");
    });
  const contracts = (): readonly { readonly consumer: string; readonly contract: AnyContract }[] =>
    registry
      .consumers()
      .flatMap(({ name, handlers }) =>
        [...handlers.values()].map(({ contract }) => ({ consumer: name, contract })),
      );
  return {
    list: (filter: DeadLetterFilter = {}) => explainFailure(listDeadLetters(deadLetters, filter)),
    show: (id: string) => explainFailure(showDeadLetter(deadLetters, id)),
    /** Open letters by their cause. */
    groups: (filter: GroupFilter = {}) => explainFailure(listDeadLetterGroups(admin, filter)),
    /** Written to the audit log with who and why; without them, with the name of the service. */
    replay: async (id: string, acting: Acting = {}) => {
      const replayed = await explainFailure(
        replayDeadLetter(deadLetters, id, toActor("deadLetters.replay", acting)),
      );
      wakeUp.notifyChanged([replayed.lane]);
      return replayed;
    },
    /** What `replayAll` would do. */
    planReplay: (filter: ReplayFilter, pace: Pick<StagedReplayOptions, "rate" | "canary"> = {}) =>
      explainFailure(planReplay(admin, filter, pace)),
    /** Cause by cause, a few first, then more and more; a cause that shows itself again stops its group. */
    replayAll: (filter: ReplayFilter, options: StagedReplayOptions) =>
      explainFailure(replayInStages(admin, filter, options)),
    /** Replays one letter with other data, held to the contract of its handler here. */
    edit: (
      id: string,
      options: { readonly data: string; readonly actor: string; readonly reason: string },
    ) => {
      const findContract = (consumer: string | null, type: string): AnyContract | undefined =>
        contracts().find((one) => one.contract.name === type && (consumer ?? one.consumer) === one.consumer)
          ?.contract;
      return explainFailure(editDeadLetter(admin, id, { ...options, contractOf: findContract }));
    },
    discard: async (id: string, acting: Acting = {}) => {
      const letter = await explainFailure(
        discardDeadLetter(deadLetters, id, toActor("deadLetters.discard", acting)),
      );
      if (letter.held !== null) wakeUp.notifyChanged([letter.held.lane]);
      return letter;
    },
    discardAll: (filter: ReplayFilter, options: DiscardOptions) =>
      explainFailure(discardDeadLetters(admin, filter, options)),
    /** Puts a message that still waits among the dead letters. */
    bury: (messageId: string, options: BuryOptions) =>
      explainFailure(buryLiveMessage(admin, messageId, options)),
    /** Every contract that has a handler here, with whose it is. */
    contracts,
  };
}
