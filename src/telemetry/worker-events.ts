import { event, field } from "./event.ts";

const durationMs = field.number("Duration in milliseconds.");
const error = field.text("Error text in one line, without payload.");
const retryInMs = field.number("Wait before the next attempt, in milliseconds.");
const doing = field.text("Operation that was running.");
const scope = field.text("Owner of the lanes: the relay or one consumer.");
const lanes = field.number("Number of lanes.");
const worker = field.text("Name of the worker in leases.");
const sagaType = field.text("Name of the saga.");
const sagaId = field.text("Id of the instance.");
const sagaKey = field.text("Key of the instance; `[sealed]` if the saga has a data subject.");
const sagaVersion = field.number("Version of the definition.");

/** Events of sagas. */
export const sagaEvents = {
  "saga.changed": event({
    level: "error",
    milder: { level: "info", when: "`to` is not `failed`", is: ({ to }) => to !== "failed" },
    always: true,
    meaning: "The status of a saga instance changed. `failed` means that an operator must decide.",
    fields: {
      type: sagaType,
      id: sagaId,
      key: sagaKey,
      from: field.text("Status before."),
      to: field.text("Status now."),
      step: field.textOrNull("The steps that failed; otherwise the steps in progress, or else the last one."),
      cause: field.text(
        "Why the instance is compensated or failed. For other changes, what moved it, as in its history: " +
          "`start`, `message:<id>`, `clock`, `worker:<name>` or `operator:<name>`.",
      ),
      error: field.textOrNull("The errors of these steps, if the instance failed."),
    },
  }),
  "saga.step": event({
    level: "debug",
    meaning: "A step of a saga changed its status.",
    fields: {
      type: sagaType,
      id: sagaId,
      key: sagaKey,
      step: field.text("Name of the step."),
      status: field.text("`in_progress`, `completed`, `failed`, `compensating`, `compensated` or `skipped`."),
      cause: field.text("What moved the instance, as in its history."),
      error: field.textOrNull("Error of the step, if it failed."),
      durationMs,
    },
  }),
  "saga.unknown_version": event({
    level: "warn",
    meaning:
      "Instances are due whose version of the definition is not registered in this process. They wait for a worker that has it.",
    fields: { type: sagaType, version: sagaVersion, count: field.number("Number of instances.") },
  }),
  "saga.definition_changed": event({
    level: "warn",
    meaning:
      "The steps of a saga were changed without a new version. The worker starts, because no unfinished instance has a step that is missing. Raise the version.",
    fields: {
      type: sagaType,
      version: sagaVersion,
      differences: field.text("Changes from the stored definition to that of this worker."),
      unfinished: field.number("Number of unfinished instances of this version, up to 100,000."),
      command: field.text("The command that shows the differences."),
    },
  }),
  "saga.failed": event({
    level: "error",
    meaning: "An instance could not be advanced because of the database. It is retried.",
    fields: {
      type: sagaType,
      id: sagaId,
      key: sagaKey,
      step: field.textOrNull("The steps in progress."),
      error,
      retryInMs,
    },
  }),
};

/** Events of the audit log and the conservation check. */
export const auditEvents = {
  "audit.sealed": event({
    level: "debug",
    meaning: "Rows of the audit log were sealed into the hash chain.",
    fields: {
      rows: field.number("Number of rows."),
      seals: field.number("Number of seals."),
      head: field.text("Number and hash of the last seal. Keep a copy elsewhere."),
    },
  }),
  "audit.chain_begun": event({
    level: "warn",
    meaning:
      "Transaction ids are lower than those sealed: the database was restored from a dump. The old chain was closed and a new one started.",
    fields: { chain: field.number("Number of the new chain.") },
  }),
  "audit.verified": event({
    level: "debug",
    meaning: "A worker compared a part of the sealed log with its seals.",
    fields: {
      rows: field.number("Number of rows."),
      seals: field.number("Number of seals."),
      findings: field.number("Number of findings, including those reported before."),
      wrapped: field.flag("Whether it reached the end of the chain. The next part is at its beginning."),
      durationMs,
    },
  }),
  "audit.broken": event({
    level: "error",
    meaning: "A part of the audit log differs from its seal. `sagabox audit verify` shows every difference.",
    fields: {
      kind: field.text("Kind of the first finding."),
      seal: field.textOrNull("The seal that the finding is about."),
      error: field.text("The finding in one line, without data of the row."),
    },
  }),
  "conservation.checked": event({
    level: "debug",
    meaning: "The conservation check finished a round.",
    fields: {
      outcome: field.oneOf(
        ["kept", "broken", "incomplete", "elsewhere"],
        "Outcome:",
        "`incomplete`: some windows were too busy; `elsewhere`: another process runs the check.",
      ),
      messages: field.number("Number of messages checked in this round."),
      breaches: field.number("Number of known breaches."),
      skipped: field.number("Windows that were too busy to be checked. They are checked later."),
      durationMs,
    },
  }),
  "conservation.broken": event({
    level: "error",
    meaning:
      "A message is not accounted for, or is in two states. `sagabox verify` shows all breaches and what to do.",
    fields: {
      kind: field.text("Kind of breach; docs/explanation/conservation.md lists the kinds."),
      lane: field.numberOrNull("The lane of the messages; null if they belong to none."),
      count: field.number("Number of messages."),
      ids: field.text("Up to 20 ids of messages, separated by spaces."),
    },
  }),
};

/** Events of workers, lanes, maintenance and storage. */
export const workerEvents = {
  "lanes.gained": event({
    level: "info",
    always: true,
    meaning: "This process leased lanes.",
    fields: { scope, lanes },
  }),
  "lanes.released": event({
    level: "info",
    always: true,
    meaning: "This process released lanes.",
    fields: { scope, lanes },
  }),
  "lanes.lost": event({
    level: "warn",
    always: true,
    meaning: "Lanes were taken over before this process renewed their lease.",
    fields: { scope, lanes },
  }),
  "member.gone": event({
    level: "warn",
    always: true,
    meaning: "Another process ended without a clean stop: its lease expired, or it was found dead.",
    fields: { scope, member: field.text("Name of that process.") },
  }),
  "history.partition": event({
    level: "info",
    always: true,
    meaning:
      "A partition of the message archive or of the audit log was attached, dropped, or kept because it still has rows in use.",
    fields: {
      action: field.oneOf(["attached", "dropped", "kept"], "Action:"),
      partition: field.text("Name of the partition."),
    },
  }),
  "history.cleaned": event({
    level: "warn",
    milder: { level: "debug", when: "`open` is 0 or missing", is: ({ open }) => (open ?? 0) === 0 },
    meaning: "Rows past their retention were deleted.",
    fields: {
      table: field.text("Name of the table."),
      count: field.number("Number of rows."),
      open: field.optionalNumber(
        "Of dead letters: number of those that were neither replayed nor discarded.",
      ),
    },
  }),
  "transport.unreachable": event({
    level: "error",
    meaning:
      "A broker could not be reached at the start. It is retried until it answers; no message is lost.",
    fields: { transport: field.text("Name of the transport."), doing, error, retryInMs },
  }),
  "locks.blocked": event({
    level: "warn",
    meaning:
      "Another database session holds a lock on rows or tables of sagabox. The locked rows wait, and so do the later " +
      "messages of their keys; everything else continues.",
    fields: {
      doing,
      count: field.number("Number of waiting rows; 0 if a whole table is locked."),
      blockedBy: field.text(
        "Process id and application name of the blocking sessions, and the age of their transactions.",
      ),
      waitedMs: field.number("How long the operation has waited, in milliseconds."),
    },
  }),
  "storage.failed": event({
    level: "error",
    meaning: "The database failed or cannot be reached. The operation is retried.",
    fields: { doing, error, retryInMs },
  }),
  "worker.started": event({
    level: "info",
    always: true,
    meaning: "This worker started.",
    fields: { worker, service: field.text("Name of the service.") },
  }),
  "worker.stopping": event({
    level: "info",
    always: true,
    meaning: "This worker accepts no more work.",
    fields: { worker },
  }),
  "worker.stopped": event({
    level: "info",
    always: true,
    meaning: "This worker has finished or released its work.",
    fields: {
      worker,
      durationMs,
      clean: field.flag("False if the shutdown timeout passed or a part failed to stop."),
    },
  }),
};

/** Events of periodic measurements, for gauges. */
export const measuredEvents = {
  "backlog.measured": event({
    level: "debug",
    meaning: "The waiting work was counted.",
    fields: {
      pending: field.number("Unsent messages, including failed ones."),
      claimed: field.number("Messages that this process has read under its lease and not settled."),
      oldestAgeMs: field.number("How long the oldest of them has been due, in milliseconds."),
      deadLetters: field.number("Open dead letters."),
      unownedLanes: field.number("Lanes of the outbox that no live process holds."),
    },
  }),
  "lag.measured": event({
    level: "debug",
    meaning: "The messages that a consumer has not handled yet were counted, by one of its workers.",
    fields: {
      consumer: field.text("Name of the consumer."),
      topic: field.textOrNull("Topic of the messages. Null if the transport cannot tell its topics apart."),
      waiting: field.numberOrNull("Number of messages. Null if it is unknown."),
      oldestAgeMs: field.numberOrNull(
        "For how long the oldest of them could have been handled, in milliseconds. Null if it is unknown.",
      ),
    },
  }),
  "lag.unknown": event({
    level: "warn",
    meaning: "It could not be measured how far consumers are behind. Their metrics are removed until it can.",
    fields: { failures: field.number("Number of failures in a row."), error },
  }),
  "pool.measured": event({
    level: "debug",
    meaning: "The database connections of this process were counted.",
    fields: {
      max: field.number("Maximum number of connections."),
      total: field.number("Number of connections."),
      idle: field.number("Number of idle connections."),
      waiting: field.number("Number of callers that wait for a connection."),
    },
  }),
  "process.measured": event({
    level: "debug",
    meaning: "Memory, CPU time and event-loop delay of this process were measured.",
    fields: {
      startedMs: field.number("Start of the process, in milliseconds since 1970."),
      cpuMs: field.number("CPU time since the start, in milliseconds."),
      residentBytes: field.number("Resident memory in bytes."),
      heapBytes: field.number("Used heap memory in bytes."),
      lagMaxMs: field.number("Largest event-loop delay since the last measurement, in milliseconds."),
      lagP99Ms: field.number(
        "99th percentile of event-loop delay since the last measurement, in milliseconds.",
      ),
    },
  }),
  "sagas.measured": event({
    level: "debug",
    meaning: "The sagas that have not ended were counted by status, up to 100,000.",
    fields: {
      status: field.text(
        "`started`, `running`, `completing`, `compensating` or `failed`; `stuck` for instances that are long overdue.",
      ),
      count: field.number("Number of instances."),
    },
  }),
  "dead_letters.measured": event({
    level: "debug",
    meaning: "The newest open dead letters, up to 10,000, were counted by consumer and type.",
    fields: {
      consumer: field.text("Name of the consumer; `outbox` for messages that could not be sent."),
      type: field.text("Type of the message."),
      count: field.number("Number of dead letters."),
    },
  }),
};
