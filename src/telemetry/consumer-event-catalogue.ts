import {
  attempt,
  consumer,
  delayMs,
  durationMs,
  error,
  id,
  topic,
  type,
  type EventEntries,
} from "./event-entry.ts";

/** What consumers tell. */
export const consumerEventCatalogue: EventEntries<`consumer.${string}`> = {
  "consumer.began": {
    level: "info",
    meaning:
      'A consumer is new to a topic. With `now` it hears nothing of what was published before; `from: "beginning"` on a consumer that is not there yet starts it with everything still kept. Brokers do not tell.',
    fields: { consumer, topic, from: "`now`, `beginning` or a time." },
  },
  "consumer.processed": {
    level: "debug",
    meaning: "A handler finished and its transaction committed.",
    fields: { consumer, type, topic, id, durationMs },
  },
  "consumer.duplicate": {
    level: "debug",
    meaning: "A message was delivered again and its effect was not repeated.",
    fields: { consumer, type, topic, id },
  },
  "consumer.skipped": {
    level: "info",
    meaning: "A command of a saga was settled without its handler, because of what became of earlier ones.",
    fields: {
      consumer,
      type,
      topic,
      id,
      reason:
        "`nothing_to_undo`, `already_undone`, or `superseded` when the command it repeats had been carried out.",
    },
  },
  "consumer.passed_over": {
    level: "warn",
    milder: { level: "debug", when: "`first` is false", is: ({ first }) => !first },
    meaning:
      "A consumer got an event of a type that it has no handler for, and left it at that. Register a handler, or set `unknown` to say what should become of it.",
    fields: {
      consumer,
      type,
      topic,
      id,
      first: "Whether it is the first of its type in this process, and `unknown` was not set.",
    },
  },
  "consumer.retried": {
    level: "warn",
    always: true,
    meaning: "A handler failed; the message comes back later.",
    fields: {
      consumer,
      type,
      topic,
      id,
      attempt,
      delayMs,
      charged: "Whether the failure counts against the message's attempts.",
      error,
    },
  },
  "consumer.interrupted": {
    level: "error",
    meaning:
      "A consumer has received nothing for some seconds, because its broker or database cannot be reached; it tries for ever.",
    fields: { consumer, error },
  },
  "consumer.sealed": {
    level: "warn",
    meaning:
      "A handler gets messages with personal fields, but this process has no key ring: it will see Sealed values only.",
    fields: { consumer, type },
  },
  "consumer.resumed": {
    level: "info",
    meaning: "A consumer that was interrupted receives again.",
    fields: { consumer, durationMs: "How long it was interrupted, in milliseconds." },
  },
  "consumer.stuck": {
    level: "error",
    meaning: "A handler did not end within its time; its transaction was cut off.",
    fields: { consumer, type, id, deadlineMs: "The time it had, in milliseconds." },
  },
  "consumer.suspect": {
    level: "error",
    // Whoever takes over from a process that was killed finds all it had prefetched, and nearly all of that is innocent.
    milder: { level: "warn", when: "`crashes` is 0", is: ({ crashes }) => crashes === 0 },
    meaning: "A process died while it held this message, which now runs alone.",
    fields: {
      consumer,
      id,
      crashes:
        "How often a process died while it ran this message and nothing else; 0 as long as it may be innocent.",
    },
  },
};
