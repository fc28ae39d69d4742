import { auditEventCatalogue } from "./audit-event-catalogue.ts";
import { conservationEventCatalogue } from "./conservation-event-catalogue.ts";
import { consumerEventCatalogue } from "./consumer-event-catalogue.ts";
import {
  type,
  topic,
  id,
  count,
  durationMs,
  delayMs,
  attempt,
  error,
  scope,
  lanes,
  open,
  depth,
  via,
  worker,
  type EventEntries,
  type EventEntry,
} from "./event-entry.ts";
import { measuredEventCatalogue } from "./measured-event-catalogue.ts";
import { payloadEventCatalogue } from "./payload-event-catalogue.ts";
import { sagaEventCatalogue } from "./saga-event-catalogue.ts";
import type { TelemetryEvents, TelemetryName } from "./events.ts";

export type { EventEntry, LogLevel } from "./event-entry.ts";

/** Every event with its meaning, its fields and how loudly it is logged. docs/reference/telemetry.md is made from this. */
export const eventCatalogue: EventEntries<TelemetryName> = {
  ...auditEventCatalogue,
  ...conservationEventCatalogue,
  ...consumerEventCatalogue,
  ...sagaEventCatalogue,
  ...payloadEventCatalogue,
  ...measuredEventCatalogue,
  "outbox.written": {
    level: "debug",
    meaning: "Messages were written to the outbox; their transaction may still roll back.",
    fields: { count, optimistic: "How many of them will be sent right after commit." },
  },
  "outbox.duplicate": {
    level: "info",
    meaning: "A message id chosen by the caller was seen before, so nothing was written.",
    fields: { id, type },
  },
  "outbox.refused": {
    level: "warn",
    meaning: "The outbox was full and a message was refused or dropped.",
    fields: { topic, policy: "`refuse` or `drop`.", depth: "Estimated number of unsent messages." },
  },
  "relay.fetched": {
    level: "debug",
    meaning: "One read of due messages under a lease.",
    fields: { count, durationMs },
  },
  "relay.batch": {
    level: "debug",
    meaning: "One batch went through the transport and was settled.",
    fields: { count, durationMs },
  },
  "relay.published": {
    level: "debug",
    meaning: "Messages of one type were confirmed by the transport.",
    fields: { type, topic, count, durationMs },
  },
  "relay.failed": {
    level: "warn",
    meaning: "The transport rejected a message; it waits for its next attempt.",
    fields: { id, type, topic, attempt, delayMs, reason: "Class of the failure.", error },
  },
  "relay.paused": {
    level: "warn",
    meaning: "The broker failed: nothing is charged to the messages, the destination rests.",
    fields: { topic, delayMs, reason: "`unreachable` or `unknown`.", error },
  },
  "breaker.opened": {
    level: "error",
    meaning:
      "A destination failed too often in a row. Its messages wait uncharged and its broker is not called; all others flow.",
    fields: {
      topic,
      failures: "How many batches failed in a row.",
      delayMs,
      reason: "`unreachable` or `unknown`.",
      error,
      open,
    },
  },
  "breaker.probing": {
    level: "info",
    meaning: "The cool-down of a destination is over: one message finds out whether its broker is back.",
    fields: { topic, open },
  },
  "breaker.closed": {
    level: "info",
    meaning: "A destination answers again, and its messages flow.",
    fields: { topic, durationMs: "How long it had been open, in milliseconds.", open },
  },
  "breaker.forgotten": {
    level: "info",
    meaning:
      "This process has had nothing to send to an open destination for so long that it no longer counts as open here: others send to it now, or nobody does.",
    fields: { topic, durationMs: "How long it had been open, in milliseconds.", open },
  },
  "depth.measured": {
    level: "debug",
    meaning: "The broker, or the queue in PostgreSQL, told how much waits in a topic.",
    fields: { topic, depth },
  },
  "depth.forgotten": {
    level: "debug",
    meaning:
      "The broker has not told for some looks how much waits in a topic, so the last figure is no longer shown.",
    fields: { topic },
  },
  "depth.unknown": {
    level: "warn",
    meaning:
      "The broker did not tell how much waits, at all or in a topic that is paused. After some times such topics go on.",
    fields: { failures: "How often in a row.", error },
  },
  "destination.paused": {
    level: "warn",
    meaning: "Too much waits at the broker: nothing more is sent to this topic for now; all others flow.",
    fields: { topic, depth },
  },
  "destination.resumed": {
    level: "info",
    meaning: "A topic that was paused flows again.",
    fields: {
      topic,
      depth: `${depth} Null when the broker no longer tells.`,
      durationMs: "How long it was paused, in milliseconds.",
    },
  },
  "relay.lost": {
    level: "warn",
    meaning: "A batch could not be settled because its lanes were taken over; the new owner sends it again.",
    fields: { lanes, count },
  },
  "optimistic.attempted": {
    level: "debug",
    meaning: "Messages are being sent right after their commit.",
    fields: { count },
  },
  "optimistic.succeeded": {
    level: "debug",
    meaning: "Messages sent right after their commit were confirmed.",
    fields: { count, durationMs },
  },
  "optimistic.failed": {
    level: "info",
    meaning: "Sending right after commit did not work out; the relay sends the messages.",
    fields: { count, reason: "`timeout`, `error`, `late` or `resting`.", error },
  },
  "lanes.gained": { level: "info", meaning: "This process leased lanes.", fields: { scope, lanes } },
  "lanes.released": { level: "info", meaning: "This process handed lanes over.", fields: { scope, lanes } },
  "lanes.lost": {
    level: "warn",
    meaning: "Lanes were taken over before this process could renew their lease.",
    fields: { scope, lanes },
  },
  "member.gone": {
    level: "warn",
    meaning: "Another process ended without a good-bye: its lease ran out, or it was seen to be dead.",
    fields: { scope, member: "Name of that process." },
  },
  "scheduled.due": { level: "debug", meaning: "Scheduled messages became due.", fields: { count } },
  "history.partition": {
    level: "info",
    meaning:
      "A partition of the message archive or of the audit log was attached, dropped or kept for stragglers.",
    fields: { action: "`attached`, `dropped` or `kept`.", partition: "Name of the partition." },
  },
  "history.cleaned": {
    level: "warn",
    milder: { level: "debug", when: "`open` is 0 or missing", is: ({ open }) => (open ?? 0) === 0 },
    meaning: "Rows past their retention were removed.",
    fields: {
      table: "Name of the table.",
      count: "How many rows.",
      open: "Of dead letters: how many of them nobody had replayed or discarded.",
    },
  },
  "dead_letter.buried": {
    level: "error",
    always: true,
    meaning: "A message was given up and waits in the dead letters for a person.",
    fields: {
      origin: "`outbox` or `consumer`.",
      consumer: "Name of the consumer; null when it died in the outbox.",
      id,
      type,
      topic,
      reason: "Class of the failure.",
      error,
    },
  },
  "transport.unreachable": {
    level: "error",
    meaning:
      "A broker could not be reached at the start; it is tried again for ever, and nothing is lost meanwhile.",
    fields: {
      transport: "Which transport.",
      doing: "What was being done.",
      error,
      retryInMs: "Wait before the next try, in milliseconds.",
    },
  },
  "notice.sent": { level: "debug", meaning: "Somebody was told of a dead letter.", fields: { via, id } },
  "notice.failed": {
    level: "warn",
    meaning: "Nobody could be told of a dead letter; the letter itself is safe.",
    fields: { via, id, attempt, error },
  },
  "notice.dropped": {
    level: "warn",
    meaning: "Too many dead letters came at once, so nobody was told of this one; the letter itself is safe.",
    fields: { via, id },
  },
  "request.settled": {
    level: "debug",
    meaning: "A request was answered, its command failed, or nobody answered in time.",
    fields: { type, outcome: "`done`, `failed` or `timeout`.", durationMs },
  },
  "locks.blocked": {
    level: "warn",
    meaning:
      "Another database session holds a lock on our rows or tables. The rows it locked wait, and with them the later " +
      "messages of their keys; everything else continues.",
    fields: {
      doing: "What was being done.",
      count: "How many rows wait; 0 where a whole table is locked.",
      blockedBy:
        "Process id and application name of the blocking sessions, and the age of their transactions.",
      waitedMs: "How long this work has waited so far, in milliseconds.",
    },
  },
  "storage.failed": {
    level: "error",
    meaning: "The database failed or cannot be reached; the work is tried again.",
    fields: { doing: "What was being done.", error, retryInMs: "Wait before the next try, in milliseconds." },
  },
  "worker.started": {
    level: "info",
    meaning: "This process takes part in the work.",
    fields: { worker, service: "Name of the service." },
  },
  "worker.stopping": { level: "info", meaning: "This process takes no more work.", fields: { worker } },
  "worker.stopped": {
    level: "info",
    meaning: "This process has finished or handed over what it had begun.",
    fields: {
      worker,
      durationMs,
      clean: "False when the time for stopping ran out, or something failed to stop.",
    },
  },
  "backlog.measured": {
    level: "debug",
    meaning: "The waiting work was counted.",
    fields: {
      pending: "Messages waiting to be sent, failed ones included.",
      claimed: "Messages this process has read under its lease and not settled yet.",
      oldestAgeMs: "How long the oldest one has been due, in milliseconds.",
      deadLetters: "Dead letters that nobody has dealt with.",
      unownedLanes: "Lanes of the outbox that no living process holds.",
    },
  },
};

/** How loudly this one is logged. */
export function logLevelFor<Name extends TelemetryName>(
  name: Name,
  fields: TelemetryEvents[Name],
): EventEntry["level"] {
  const { level, milder }: EventEntry<Name> = eventCatalogue[name];
  return milder?.is(fields) === true ? milder.level : level;
}

/** Whether each has its line; of the others, those that are alike are counted. */
export function isAlwaysLogged(name: TelemetryName): boolean {
  return eventCatalogue[name].always === true;
}
