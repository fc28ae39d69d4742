import { event, field } from "./event.ts";

const consumer = field.text("Name of the consumer.");
const type = field.text("Type of the message.");
const topic = field.text("Topic of the message.");
const id = field.text("Id of the message.");
const count = field.number("Number of messages.");
const durationMs = field.number("Duration in milliseconds.");
const openMs = field.number("How long the breaker was open, in milliseconds.");
const delayMs = field.number("Wait before the next attempt, in milliseconds.");
const attempt = field.number("Number of the attempt, counted from 1.");
const error = field.text("Error text in one line, without payload.");
const open = field.number("Number of destinations that are open or half-open now.");
const depth = field.number("Number of messages that wait at the broker for their slowest group.");
const brokerReason = field.oneOf(["unreachable", "unknown"], "Class of the failure:");
const via = field.oneOf(["hook", "webhook"], "Kind of notice:");
const store = field.text("Name of the store in references.");
const as = field.oneOf(["payload", "attachment"], "Kind of object:");
const bytes = field.number("Number of bytes.");

/** Events of the outbox and of sending. */
export const outboxEvents = {
  "outbox.written": event({
    level: "debug",
    meaning: "Messages were written to the outbox; their transaction may still roll back.",
    fields: { count, optimistic: field.number("Number of them that are sent right after the commit.") },
  }),
  "outbox.duplicate": event({
    level: "info",
    meaning: "A message id chosen by the caller was already used, so nothing was written.",
    fields: { id, type },
  }),
  "outbox.refused": event({
    level: "warn",
    meaning: "The outbox was full and a message was refused or dropped.",
    fields: {
      topic,
      policy: field.oneOf(["refuse", "drop"], "What happened to it:"),
      depth: field.number("Estimated number of unsent messages."),
    },
  }),
  "relay.fetched": event({
    level: "debug",
    meaning: "The relay read due messages under a lease.",
    fields: { count, durationMs },
  }),
  "relay.batch": event({
    level: "debug",
    meaning: "One batch was sent to the transport and settled.",
    fields: { count, durationMs },
  }),
  "relay.published": event({
    level: "debug",
    meaning: "The transport confirmed messages of one type.",
    fields: { type, topic, count, durationMs },
  }),
  "relay.failed": event({
    level: "warn",
    meaning: "The transport rejected a message, which waits for its next attempt.",
    fields: { id, type, topic, attempt, delayMs, reason: field.text("Class of the failure."), error },
  }),
  "relay.paused": event({
    level: "warn",
    meaning: "The broker failed. Sending to the destination pauses; its messages use up no attempts.",
    fields: { topic, delayMs, reason: brokerReason, error },
  }),
  "relay.lost": event({
    level: "warn",
    meaning: "A batch could not be settled because its lanes were taken over. The new owner sends it again.",
    fields: { lanes: field.number("Number of lanes."), count },
  }),
  "breaker.opened": event({
    level: "error",
    meaning:
      "Sending to a destination failed too often in a row and stops. Its messages wait and use up no attempts; other destinations are not affected.",
    fields: {
      topic,
      failures: field.number("Number of failed batches in a row."),
      delayMs,
      reason: brokerReason,
      error,
      open,
    },
  }),
  "breaker.probing": event({
    level: "info",
    meaning: "The cool-down of a destination is over. One message tests whether its broker answers.",
    fields: { topic, open },
  }),
  "breaker.closed": event({
    level: "info",
    meaning: "A destination answers again, and its messages are sent.",
    fields: { topic, durationMs: openMs, open },
  }),
  "breaker.forgotten": event({
    level: "info",
    meaning:
      "This process had no messages for an open destination for so long that its state is outdated, and removed it.",
    fields: { topic, durationMs: openMs, open },
  }),
  "depth.measured": event({
    level: "debug",
    meaning:
      "The number of waiting messages of a topic was read from the broker, or from the queue in PostgreSQL.",
    fields: { topic, depth },
  }),
  "depth.forgotten": event({
    level: "debug",
    meaning: "The broker has not reported the depth of a topic for several reads, so the metric is removed.",
    fields: { topic },
  }),
  "depth.unknown": event({
    level: "warn",
    meaning:
      "The broker did not report how many messages wait, or not for a paused topic. After several failures such topics are resumed.",
    fields: { failures: field.number("Number of failures in a row."), error },
  }),
  "destination.paused": event({
    level: "warn",
    meaning:
      "Too many messages wait at the broker, so sending to this topic pauses. Other topics are not affected.",
    fields: { topic, depth },
  }),
  "destination.resumed": event({
    level: "info",
    meaning: "Sending to a paused topic was resumed.",
    fields: {
      topic,
      depth: field.numberOrNull(`${depth.meaning} Null if the broker no longer reports it.`),
      durationMs: field.number("How long it was paused, in milliseconds."),
    },
  }),
  "optimistic.attempted": event({
    level: "debug",
    meaning: "Messages are being sent right after their commit.",
    fields: { count },
  }),
  "optimistic.succeeded": event({
    level: "debug",
    meaning: "The transport confirmed messages that were sent right after their commit.",
    fields: { count, durationMs },
  }),
  "optimistic.failed": event({
    level: "info",
    meaning: "Messages could not be sent right after their commit. The relay sends them.",
    fields: {
      count,
      reason: field.oneOf(["timeout", "error", "late", "resting"], "Class of the failure:"),
      error,
    },
  }),
  "scheduled.due": event({ level: "debug", meaning: "Scheduled messages became due.", fields: { count } }),
};

/** Events of consumers, dead letters and requests. */
export const consumerEvents = {
  "consumer.began": event({
    level: "info",
    meaning:
      'A consumer is new to a topic. From `now`, it does not receive messages published before; `from: "beginning"` on a new consumer starts with the oldest stored message. Not reported with brokers.',
    fields: { consumer, topic, from: field.text("`now`, `beginning` or a time.") },
  }),
  "consumer.processed": event({
    level: "debug",
    meaning: "A handler finished and its transaction committed.",
    fields: { consumer, type, topic, id, durationMs },
  }),
  "consumer.duplicate": event({
    level: "debug",
    meaning: "A message was delivered again, and its effect was not repeated.",
    fields: { consumer, type, topic, id },
  }),
  "consumer.skipped": event({
    level: "info",
    meaning:
      "A command of a saga was settled without its handler, because of the outcome of earlier commands.",
    fields: {
      consumer,
      type,
      topic,
      id,
      reason: field.oneOf(
        ["nothing_to_undo", "already_undone", "superseded"],
        "Reason:",
        "`superseded`: the command it repeats was already executed.",
      ),
    },
  }),
  "consumer.passed_over": event({
    level: "warn",
    milder: { level: "debug", when: "`first` is false", is: ({ first }) => !first },
    meaning:
      "A consumer ignored an event of a type without a handler. Register a handler, or set `unknown` to choose what happens.",
    fields: {
      consumer,
      type,
      topic,
      id,
      first: field.flag("Whether it is the first of its type in this process and `unknown` is not set."),
    },
  }),
  "consumer.retried": event({
    level: "warn",
    always: true,
    meaning: "A handler failed; the message is handled again later.",
    fields: {
      consumer,
      type,
      topic,
      id,
      attempt,
      delayMs,
      countsAsAttempt: field.flag("Whether the failure counts as an attempt."),
      error,
    },
  }),
  "consumer.interrupted": event({
    level: "error",
    meaning:
      "A consumer has received nothing for some seconds, because its broker or database cannot be reached. It retries until it succeeds.",
    fields: { consumer, error },
  }),
  "consumer.sealed": event({
    level: "warn",
    meaning:
      "A handler receives messages with personal fields, but this process has no key ring, so the fields stay encrypted.",
    fields: { consumer, type },
  }),
  "consumer.resumed": event({
    level: "info",
    meaning: "An interrupted consumer receives messages again.",
    fields: { consumer, durationMs: field.number("How long it was interrupted, in milliseconds.") },
  }),
  "consumer.stuck": event({
    level: "error",
    meaning: "A handler exceeded its deadline, and its transaction was aborted.",
    fields: { consumer, type, id, deadlineMs: field.number("The deadline in milliseconds.") },
  }),
  "consumer.suspect": event({
    level: "error",
    // A worker that takes over from a killed process finds all messages it had prefetched; nearly all are harmless.
    milder: { level: "warn", when: "`crashes` is 0", is: ({ crashes }) => crashes === 0 },
    meaning: "A process died while it held this message, which now runs alone.",
    fields: {
      consumer,
      id,
      crashes: field.number(
        "Number of processes that died while they ran only this message; 0 while other messages may be the cause.",
      ),
    },
  }),
  "dead_letter.buried": event({
    level: "error",
    always: true,
    meaning: "A message was dead-lettered and waits for an operator.",
    fields: {
      origin: field.oneOf(["outbox", "consumer"], "Where it failed:"),
      consumer: field.textOrNull("Name of the consumer; null if it failed in the outbox."),
      id,
      type,
      topic,
      reason: field.text("Class of the failure."),
      error,
    },
  }),
  "notice.sent": event({
    level: "debug",
    meaning: "A dead-letter notice was delivered.",
    fields: { via, id },
  }),
  "notice.failed": event({
    level: "warn",
    meaning: "A dead-letter notice could not be delivered. The dead letter itself is stored.",
    fields: { via, id, attempt, error },
  }),
  "notice.dropped": event({
    level: "warn",
    meaning: "Too many dead letters arrived at once, so no notice was sent for this one. It is stored.",
    fields: { via, id },
  }),
  "request.settled": event({
    level: "debug",
    meaning: "A request was answered, its command failed, or its timeout passed.",
    fields: { type, outcome: field.oneOf(["done", "failed", "timeout"], "Outcome:"), durationMs },
  }),
};

/** Events of the claim check. They contain no keys, because logs must not lead to payloads. */
export const payloadEvents = {
  "payload.stored": event({
    level: "debug",
    meaning: "A large payload or an attachment was stored; its transaction may still roll back.",
    fields: { store, as, bytes, durationMs },
  }),
  "payload.fetched": event({
    level: "debug",
    meaning: "A large payload or an attachment was read, and its checksum is correct.",
    fields: { store, as, bytes, durationMs },
  }),
  "payload.failed": event({
    level: "error",
    milder: {
      level: "warn",
      when: "`code` is `CLAIM_STORE_UNAVAILABLE`",
      is: ({ code }) => code === "CLAIM_STORE_UNAVAILABLE",
    },
    meaning: "A store failed, or an object in it is not what was stored.",
    fields: {
      store,
      doing: field.oneOf(["storing", "fetching", "collecting"], "Operation:"),
      code: field.text("Code of the error."),
      error,
    },
  }),
  "payload.collected": event({
    level: "info",
    meaning: "Payloads and attachments were deleted.",
    fields: {
      store,
      count: field.number("Number of objects."),
      reason: field.oneOf(
        ["unneeded", "orphaned"],
        "Reason:",
        "`unneeded`: past their retention and not referenced; `orphaned`: left by an aborted transaction.",
      ),
    },
  }),
};
