import { type, type EventEntries } from "./event-entry.ts";

type Measured = `pool.${string}` | `process.${string}` | `sagas.${string}` | `dead_letters.${string}`;

/** What is looked at now and then, for gauges. */
export const measuredEventCatalogue: EventEntries<Measured> = {
  "pool.measured": {
    level: "debug",
    meaning: "The connections of this process to the database were counted.",
    fields: {
      max: "How many there can be.",
      total: "How many there are.",
      idle: "How many of them nobody uses.",
      waiting: "How many callers wait for one.",
    },
  },
  "process.measured": {
    level: "debug",
    meaning: "Memory, processor and event loop of this process were looked at.",
    fields: {
      startedMs: "When it started, in milliseconds since 1970.",
      cpuMs: "Processor time since then, in milliseconds.",
      residentBytes: "Memory it has.",
      heapBytes: "Memory its objects take.",
      lagMaxMs: "How late the event loop was at its worst since the last look, in milliseconds.",
      lagP99Ms: "The same, all but one time in a hundred.",
    },
  },
  "sagas.measured": {
    level: "debug",
    meaning: "Sagas that have not ended were counted, for each status; up to 100,000 of them.",
    fields: {
      status:
        "`started`, `running`, `completing`, `compensating` or `failed`; `stuck` for those long overdue.",
      count: "How many instances.",
    },
  },
  "dead_letters.measured": {
    level: "debug",
    meaning: "The newest open dead letters, up to 10,000, were counted for each consumer and type.",
    fields: {
      consumer: "Name of the consumer; `outbox` for those that could not be sent.",
      type,
      count: "How many letters.",
    },
  },
};
