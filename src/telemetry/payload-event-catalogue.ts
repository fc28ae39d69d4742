import { durationMs, error, type EventEntries } from "./event-entry.ts";

const store = "Name of the store in references.";
const as = "`payload` for the data of a message, `attachment` for a file beside it.";
const bytes = "How many bytes.";

/** What the claim check tells. Keys are not among it: whoever reads a log must not find the way to a payload. */
export const payloadEventCatalogue: EventEntries<`payload.${string}`> = {
  "payload.stored": {
    level: "debug",
    meaning: "A large payload or an attachment was put into a store; its transaction may still roll back.",
    fields: { store, as, bytes, durationMs },
  },
  "payload.fetched": {
    level: "debug",
    meaning: "A large payload or an attachment was read and is what was put there.",
    fields: { store, as, bytes, durationMs },
  },
  "payload.failed": {
    level: "error",
    milder: {
      level: "warn",
      when: "`code` is `CLAIM_STORE_UNAVAILABLE`",
      is: ({ code }) => code === "CLAIM_STORE_UNAVAILABLE",
    },
    meaning: "A store failed, or what lies in it is not what was put there.",
    fields: { store, doing: "`storing`, `fetching` or `collecting`.", code: "Code of the error.", error },
  },
  "payload.collected": {
    level: "info",
    meaning: "Payloads and attachments were deleted.",
    fields: {
      store,
      count: "How many.",
      reason:
        "`unneeded`: past their retention and used by nothing. `orphaned`: left by an aborted transaction.",
    },
  },
};
