import { durationMs, error, type EventEntries } from "./event-entry.ts";

const sagaType = "Name of the saga.";
const sagaId = "Id of the instance.";

/** What sagas tell. */
export const sagaEventCatalogue: EventEntries<`saga.${string}`> = {
  "saga.changed": {
    level: "error",
    milder: { level: "info", when: "`to` is not `failed`", is: ({ to }) => to !== "failed" },
    meaning:
      "An instance of a saga went from one status to another; `failed` means that a person has to decide.",
    fields: {
      type: sagaType,
      id: sagaId,
      from: "Its status before.",
      to: "Its status now.",
      step: "The steps that are stuck, when it failed.",
      error: "What went wrong with them, when it failed.",
    },
  },
  "saga.step": {
    level: "debug",
    meaning: "A step of a saga changed its status.",
    fields: {
      type: sagaType,
      id: sagaId,
      step: "Name of the step.",
      status: "`in_progress`, `completed`, `failed`, `compensating`, `compensated` or `skipped`.",
      durationMs,
    },
  },
  "saga.unknown_version": {
    level: "warn",
    meaning:
      "Instances are due, but this process does not know their version of the definition; they wait for one that does.",
    fields: { type: sagaType, version: "The version they began with.", count: "How many instances." },
  },
  "saga.failed": {
    level: "error",
    meaning: "An instance could not be moved, because of the database; it is tried again.",
    fields: { type: sagaType, id: sagaId, error, retryInMs: "When it is tried again, in milliseconds." },
  },
};
