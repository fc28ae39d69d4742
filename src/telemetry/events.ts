/**
 * Everything sagabox tells about itself while it works. Names and fields are public API: sinks (log lines,
 * metrics, traces) are made from these and from nothing else. Durations are milliseconds, counts are messages.
 */
export interface TelemetryEvents {
  /** Messages were written to the outbox (their transaction may still roll back). */
  "outbox.written": { readonly count: number; readonly optimistic: number };
  /** A caller-chosen id was seen before: nothing was written. */
  "outbox.duplicate": { readonly id: string; readonly type: string };
  "outbox.refused": { readonly topic: string; readonly policy: "refuse" | "drop"; readonly depth: number };
  /** One read of due rows. */
  "relay.fetched": { readonly count: number; readonly durationMs: number };
  /** One batch went through the transport and was settled. */
  "relay.batch": { readonly count: number; readonly durationMs: number };
  "relay.published": {
    readonly type: string;
    readonly topic: string;
    readonly count: number;
    readonly durationMs: number;
  };
  /** A message's own failure: it waits for its next attempt. */
  "relay.failed": {
    readonly id: string;
    readonly type: string;
    readonly topic: string;
    readonly attempt: number;
    readonly delayMs: number;
    readonly reason: string;
    readonly error: string;
  };
  /** The broker's failure: nothing is charged, the destination rests. */
  "relay.paused": {
    readonly topic: string;
    readonly delayMs: number;
    readonly reason: "unreachable" | "unknown";
    readonly error: string;
  };
  /** A destination failed too often in a row: its messages wait, and nobody calls its broker. */
  "breaker.opened": {
    readonly topic: string;
    readonly failures: number;
    readonly delayMs: number;
    readonly reason: "unreachable" | "unknown";
    readonly error: string;
    readonly open: number;
  };
  /** The cool-down is over: one message finds out whether the broker is back. */
  "breaker.probing": { readonly topic: string; readonly open: number };
  "breaker.closed": { readonly topic: string; readonly durationMs: number; readonly open: number };
  /** This process has had nothing to send there for so long that what it knew is out of date. */
  "breaker.forgotten": { readonly topic: string; readonly durationMs: number; readonly open: number };
  /** One look at the queue of a topic at the broker. */
  "depth.measured": { readonly topic: string; readonly depth: number };
  /** The broker has not told for so long that the last figure is out of date. */
  "depth.forgotten": { readonly topic: string };
  "depth.unknown": { readonly failures: number; readonly error: string };
  /** The queue at the broker is full: nothing more is sent to this topic, the others flow. */
  "destination.paused": { readonly topic: string; readonly depth: number };
  "destination.resumed": {
    readonly topic: string;
    readonly depth: number | null;
    readonly durationMs: number;
  };
  "relay.lost": { readonly lanes: number; readonly count: number };
  "optimistic.attempted": { readonly count: number };
  "optimistic.succeeded": { readonly count: number; readonly durationMs: number };
  "optimistic.failed": {
    readonly count: number;
    readonly reason: "timeout" | "error" | "late" | "resting";
    readonly error: string;
  };
  /** An instance of a saga went from one status to another. */
  "saga.changed": {
    readonly type: string;
    readonly id: string;
    readonly from: string;
    readonly to: string;
    readonly step: string | null;
    readonly error: string | null;
  };
  "saga.step": {
    readonly type: string;
    readonly id: string;
    readonly step: string;
    readonly status: string;
    readonly durationMs: number;
  };
  /** Instances are due and no definition of their version is registered here. */
  "saga.unknown_version": { readonly type: string; readonly version: number; readonly count: number };
  /** A worker starts with another definition than is stored for this version. */
  "saga.definition_changed": {
    readonly type: string;
    readonly version: number;
    readonly differences: string;
    readonly unfinished: number;
    readonly command: string;
  };
  "saga.failed": {
    readonly type: string;
    readonly id: string;
    readonly error: string;
    readonly retryInMs: number;
  };
  "lanes.gained": { readonly scope: string; readonly lanes: number };
  "lanes.released": { readonly scope: string; readonly lanes: number };
  "lanes.lost": { readonly scope: string; readonly lanes: number };
  /** A member's lease ran out without a good-bye. */
  "member.gone": { readonly scope: string; readonly member: string };
  "scheduled.due": { readonly count: number };
  /** Rows of the audit log were sealed. */
  "audit.sealed": { readonly rows: number; readonly seals: number; readonly head: string };
  /** Transaction ids went backwards, so a new chain was begun. */
  "audit.chain_begun": { readonly chain: number };
  /** A piece of the sealed log was compared with its seals. */
  "audit.verified": {
    readonly rows: number;
    readonly seals: number;
    readonly findings: number;
    readonly wrapped: boolean;
    readonly durationMs: number;
  };
  /** Something in the audit log is not as it was sealed. */
  "audit.broken": { readonly kind: string; readonly seal: string | null; readonly error: string };
  /** One look of the conservation check. */
  "conservation.checked": {
    readonly outcome: "kept" | "broken" | "incomplete" | "elsewhere";
    readonly messages: number;
    readonly breaches: number;
    readonly skipped: number;
    readonly durationMs: number;
  };
  /** Something written is not accounted for, or is in two states at once. */
  "conservation.broken": {
    readonly kind: string;
    readonly lane: number | null;
    readonly count: number;
    readonly ids: string;
  };
  "history.partition": { readonly action: "attached" | "dropped" | "kept"; readonly partition: string };
  "history.cleaned": { readonly table: string; readonly count: number; readonly open?: number };
  /** A consumer is new to a topic; told once, by the process that came first. */
  "consumer.began": { readonly consumer: string; readonly topic: string; readonly from: string };
  "consumer.processed": {
    readonly consumer: string;
    readonly type: string;
    readonly topic: string;
    readonly id: string;
    readonly durationMs: number;
  };
  "consumer.duplicate": {
    readonly consumer: string;
    readonly type: string;
    readonly topic: string;
    readonly id: string;
  };
  /** A command that refers to earlier ones was settled and answered as done; its handler did not run. */
  "consumer.skipped": {
    readonly consumer: string;
    readonly type: string;
    readonly topic: string;
    readonly id: string;
    readonly reason: "nothing_to_undo" | "already_undone" | "superseded";
  };
  /** No handler for its type, and nothing says that there should be one. */
  "consumer.passed_over": {
    readonly consumer: string;
    readonly type: string;
    readonly topic: string;
    readonly id: string;
    readonly first: boolean;
  };
  "consumer.retried": {
    readonly consumer: string;
    readonly type: string;
    readonly topic: string;
    readonly id: string;
    readonly attempt: number;
    readonly delayMs: number;
    readonly charged: boolean;
    readonly error: string;
  };
  /** A consumer gets nothing any more, and why; told once. */
  "consumer.interrupted": { readonly consumer: string; readonly error: string };
  /** It handles personal data without the keys; told at the start, once for each type. */
  "consumer.sealed": { readonly consumer: string; readonly type: string };
  "consumer.resumed": { readonly consumer: string; readonly durationMs: number };
  "consumer.stuck": {
    readonly consumer: string;
    readonly type: string;
    readonly id: string;
    readonly deadlineMs: number;
  };
  "consumer.suspect": { readonly consumer: string; readonly id: string; readonly crashes: number };
  "dead_letter.buried": {
    readonly origin: "outbox" | "consumer";
    readonly consumer: string | null;
    readonly id: string;
    readonly type: string;
    readonly topic: string;
    readonly reason: string;
    readonly error: string;
  };
  /** A broker could not be reached at the start; it is tried again for ever. */
  "transport.unreachable": {
    readonly transport: string;
    readonly doing: string;
    readonly error: string;
    readonly retryInMs: number;
  };
  /** Somebody was told of a dead letter. */
  "notice.sent": { readonly via: "hook" | "webhook"; readonly id: string };
  "notice.failed": {
    readonly via: "hook" | "webhook";
    readonly id: string;
    readonly attempt: number;
    readonly error: string;
  };
  /** Too many dead letters at once: nobody was told of this one. */
  "notice.dropped": { readonly via: "hook" | "webhook"; readonly id: string };
  /** A request was answered, or given up. */
  "request.settled": {
    readonly type: string;
    readonly outcome: "done" | "failed" | "timeout";
    readonly durationMs: number;
  };
  /** A payload or an attachment was put into a store; its transaction may still roll back. */
  "payload.stored": {
    readonly store: string;
    readonly as: "payload" | "attachment";
    readonly bytes: number;
    readonly durationMs: number;
  };
  /** It was read and is what was put there. */
  "payload.fetched": {
    readonly store: string;
    readonly as: "payload" | "attachment";
    readonly bytes: number;
    readonly durationMs: number;
  };
  "payload.failed": {
    readonly store: string;
    readonly doing: "storing" | "fetching" | "collecting";
    readonly code: string;
    readonly error: string;
  };
  /** One page of what nobody needs any more, or of what an aborted transaction left. */
  "payload.collected": {
    readonly store: string;
    readonly count: number;
    readonly reason: "unneeded" | "orphaned";
  };
  /** Another session holds a lock that our work waits for. */
  "locks.blocked": {
    readonly doing: string;
    readonly count: number;
    readonly blockedBy: string;
    readonly waitedMs: number;
  };
  "storage.failed": { readonly doing: string; readonly error: string; readonly retryInMs: number };
  "worker.started": { readonly worker: string; readonly service: string };
  "worker.stopping": { readonly worker: string };
  "worker.stopped": { readonly worker: string; readonly durationMs: number; readonly clean: boolean };
  "backlog.measured": {
    readonly pending: number;
    readonly claimed: number;
    readonly oldestAgeMs: number;
    readonly deadLetters: number;
    readonly unownedLanes: number;
  };
  /** Connections to the database. */
  "pool.measured": {
    readonly max: number;
    readonly total: number;
    readonly idle: number;
    readonly waiting: number;
  };
  "process.measured": {
    readonly startedMs: number;
    readonly cpuMs: number;
    readonly residentBytes: number;
    readonly heapBytes: number;
    readonly lagMaxMs: number;
    readonly lagP99Ms: number;
  };
  /** Open sagas in one status, or `stuck`. */
  "sagas.measured": { readonly status: string; readonly count: number };
  /** Open dead letters of one consumer and type. */
  "dead_letters.measured": { readonly consumer: string; readonly type: string; readonly count: number };
}

export type TelemetryName = keyof TelemetryEvents;

/** Present on any event that happens on behalf of one message. */
export interface TelemetryContext {
  readonly traceparent?: string | undefined;
  readonly sagaId?: string | null | undefined;
}
