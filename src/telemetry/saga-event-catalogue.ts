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
  "saga.definition_changed": {
    level: "warn",
    meaning:
      "The steps of a saga were changed without a new version. No unfinished instance has a step that it lacks, so the worker starts; raise the version.",
    fields: {
      type: sagaType,
      version: "The version of the definition.",
      differences: "What changed from the stored definition to that of this worker.",
      unfinished: "How many instances of this version are unfinished, up to 100,000.",
      command: "The command that shows the difference.",
    },
  },
  "saga.failed": {
    level: "error",
    meaning: "An instance could not be moved, because of the database; it is tried again.",
    fields: { type: sagaType, id: sagaId, error, retryInMs: "When it is tried again, in milliseconds." },
  },
};
