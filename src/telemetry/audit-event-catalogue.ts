import { durationMs, type EventEntries } from "./event-entry.ts";

/** What the audit log tells. */
export const auditEventCatalogue: EventEntries<`audit.${string}`> = {
  "audit.sealed": {
    level: "debug",
    meaning: "Rows of the audit log were sealed into the chain of hashes.",
    fields: {
      rows: "How many rows.",
      seals: "How many seals were made of them.",
      head: "Number and hash of the last seal: what to keep elsewhere.",
    },
  },
  "audit.chain_begun": {
    level: "warn",
    meaning:
      "Transaction ids are lower than those sealed: the database was restored from a dump. The old chain was closed and a new one begun.",
    fields: { chain: "Number of the new chain." },
  },
  "audit.verified": {
    level: "debug",
    meaning: "A worker has compared another piece of the sealed log with its seals.",
    fields: {
      rows: "How many rows.",
      seals: "How many seals.",
      findings: "How many things are not as they were sealed, told before or not.",
      wrapped: "Whether it reached the end of the chain. The next piece is at its beginning.",
      durationMs,
    },
  },
  "audit.broken": {
    level: "error",
    meaning: "Something in the audit log is not as it was sealed. `sagabox audit verify` tells all of it.",
    fields: {
      kind: "What kind of finding, the first one where there are several.",
      seal: "The seal it is about.",
      error: "What was found, in one line and without data of the row.",
    },
  },
};
