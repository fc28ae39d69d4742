import { count, durationMs, type EventEntries } from "./event-entry.ts";

/** What the check tells that nothing is lost. */
export const conservationEventCatalogue: EventEntries<`conservation.${string}`> = {
  "conservation.checked": {
    level: "debug",
    meaning: "The check that nothing is lost has taken another look.",
    fields: {
      outcome:
        "`kept`, `broken`, `incomplete` when something was too busy to be looked at, or `elsewhere` when another process has the turn.",
      messages: "How many messages were looked at this time.",
      breaches: "How many things are known to be wrong.",
      skipped: "Windows that were too busy to be looked at; their turn comes again.",
      durationMs,
    },
  },
  "conservation.broken": {
    level: "error",
    meaning:
      "Something written is not accounted for, or is in two states at once. `sagabox verify` tells all of it and what to do.",
    fields: {
      kind: "What is wrong; docs/explanation/conservation.md lists the kinds.",
      lane: "The lane it is in. Null where it belongs to none.",
      count,
      ids: "The ids it is about, up to 20, with spaces between.",
    },
  },
};
