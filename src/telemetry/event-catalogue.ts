import type { TelemetryEvents, TelemetryName } from "./events.ts";

export type LogLevel = "debug" | "info" | "warn" | "error" | "silent";

export interface EventEntry<Name extends TelemetryName = TelemetryName> {
  readonly level: Exclude<LogLevel, "silent">;
  /** The same event can be an everyday matter; `when` says to people what `is` says to the log. */
  readonly milder?: {
    readonly level: Exclude<LogLevel, "silent">;
    readonly when: string;
    is(fields: TelemetryEvents[Name]): boolean;
  };
  readonly meaning: string;
  readonly fields: { readonly [Field in keyof TelemetryEvents[Name]]: string };
}

const consumer = "Name of the consumer.";
const type = "Type of the message.";
const topic = "Topic the message goes to or came from.";
const id = "Id of the message.";
const count = "How many messages.";
const durationMs = "How long it took, in milliseconds.";
const delayMs = "How long it waits, in milliseconds.";
const attempt = "Which attempt this was, counted from 1.";
const error = "What went wrong, in one line and without payload.";
const scope = "Whose lanes: the relay or one consumer.";
const lanes = "How many lanes.";
const open = "How many destinations are open or half-open now.";
const depth = "How many messages wait at the broker for their slowest group.";
const via = "`hook` or `webhook`.";
const sagaType = "Name of the saga.";
const sagaId = "Id of the instance.";
const worker = "Name of the process in leases.";

/** Every event with its meaning, its fields and how loudly it is logged. docs/telemetry.md is made from this. */
export const eventCatalogue: { readonly [Name in TelemetryName]: EventEntry<Name> } = {
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
  "depth.measured": {
    level: "debug",
    meaning: "The broker told how much waits in a topic.",
    fields: { topic, depth },
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
  "saga.changed": {
    level: "info",
    meaning:
      "An instance of a saga went from one status to another; `failed` means that a person has to decide.",
    fields: { type: sagaType, id: sagaId, from: "Its status before.", to: "Its status now." },
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
  "lanes.gained": { level: "info", meaning: "This process leased lanes.", fields: { scope, lanes } },
  "lanes.released": { level: "info", meaning: "This process handed lanes over.", fields: { scope, lanes } },
  "lanes.lost": {
    level: "warn",
    meaning: "Lanes were taken over before this process could renew their lease.",
    fields: { scope, lanes },
  },
  "member.gone": {
    level: "warn",
    meaning: "The lease of another process ran out without a good-bye.",
    fields: { scope, member: "Name of that process." },
  },
  "scheduled.due": { level: "debug", meaning: "Scheduled messages became due.", fields: { count } },
  "history.partition": {
    level: "info",
    meaning: "A daily partition of the message archive was attached, dropped or kept for stragglers.",
    fields: { action: "`attached`, `dropped` or `kept`.", partition: "Name of the partition." },
  },
  "history.cleaned": {
    level: "debug",
    meaning: "Rows past their retention were removed.",
    fields: { table: "Name of the table.", count: "How many rows." },
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
  "consumer.retried": {
    level: "warn",
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
  "dead_letter.buried": {
    level: "error",
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
    fields: { worker, durationMs, clean: "False when the time for stopping ran out." },
  },
  "backlog.measured": {
    level: "debug",
    meaning: "The waiting work was counted.",
    fields: {
      pending: "Messages waiting to be sent, failed ones included.",
      claimed: "Messages in lanes under a running lease.",
      oldestAgeMs: "How long the oldest one has been due, in milliseconds.",
      deadLetters: "Dead letters that nobody has dealt with.",
    },
  },
};

/** How loudly this one is logged. */
export function levelOf<Name extends TelemetryName>(
  name: Name,
  fields: TelemetryEvents[Name],
): EventEntry["level"] {
  const { level, milder }: EventEntry<Name> = eventCatalogue[name];
  return milder?.is(fields) === true ? milder.level : level;
}
