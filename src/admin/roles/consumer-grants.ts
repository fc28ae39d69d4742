import { sagaLogColumns, type Grant } from "./grant.ts";
import { laneGrants } from "./relay-grants.ts";

/** Handling what arrives, retries and dead letters included. */
export const consumerGrants: readonly Grant[] = [
  ...laneGrants,
  { on: "message", can: { select: "all" }, why: "reads what is delivered" },
  { on: "blob_chunk", can: { select: "all" }, why: "reads large payloads, where the store is this database" },
  { on: "consumer_group", can: { select: "all", insert: "all" }, why: "makes its group" },
  { on: "relay_lane", can: { insert: "all" }, why: "and the lanes of it" },
  { on: "subscription", can: { select: "all", insert: "all" }, why: "subscribes it" },
  {
    on: "retired_subscription",
    can: { select: "all" },
    why: "knows until when a topic had another consumer",
  },
  {
    on: "lock_subscriptions",
    can: { execute: "all" },
    why: "keeps hops out while it copies what was before",
  },
  { on: "outbox", can: { select: ["lane", "seq"] }, why: "leaves out of that copy what is still to come" },
  {
    on: "queue",
    can: { select: "all", insert: "all", update: ["attempts", "last_error", "due_at"], delete: "all" },
    why: "settles deliveries, retries them, and parks what a broker must not hold up",
  },
  { on: "queue_seq", can: { usage: "all", select: "all" }, why: "knows how far the line goes" },
  {
    on: "consumer_inbox",
    can: {
      select: "all",
      insert: "all",
      update: ["processing_duration_ms", "result", "effect", "effect_of", "undone_by"],
    },
    why: "remembers what was handled, and can never forget it",
  },
  {
    on: "running",
    can: { select: "all", insert: "all", update: ["event_ids", "alone", "started_at"], delete: "all" },
    why: "lists what runs, so that a message that kills its process is found",
  },
  {
    on: "suspect",
    can: { select: "all", insert: "all", update: ["crashes", "noticed_at"], delete: "all" },
    why: "and what may have killed it",
  },
  {
    on: "dead_letter",
    can: {
      insert: "all",
      select: ["id", "message_id", "origin", "consumer", "closed_at", "reason", "error_message"],
    },
    why: "buries once, and tells who asked why a request died",
  },
  {
    on: "reply",
    can: { select: "all", insert: "all", update: ["outcome", "body", "arrived_at"] },
    why: "keeps replies for whoever waits",
  },
  {
    on: "flow_event",
    can: { select: "all", insert: "all", update: ["open"] },
    why: "records declared flows",
  },
];

/** Moving sagas on; what a consumer may do comes on top, since sagas hear replies and events through one. */
export const sagaGrants: readonly Grant[] = [
  {
    on: "saga_instance",
    can: {
      select: "all",
      insert: "all",
      update: [
        "status",
        "state",
        "current_step",
        "waits_for",
        "waiting_since",
        "last_error",
        "retry_count",
        "due_at",
        "version",
        "claims",
        "updated_at",
        "ended_at",
        "claimed_by",
        "claimed_until",
        "attachments",
      ],
    },
    why: "keeps where each saga stands",
  },
  {
    on: "saga_mail",
    can: { select: "all", insert: "all", update: ["saga_id", "correlation_id"], delete: "all" },
    why: "leaves and collects what cannot happen at once",
  },
  {
    on: "saga_incident",
    can: { select: "all", insert: "all", update: ["steps", "error", "closed_at", "resolution"] },
    why: "calls a person, and notes what came of it",
  },
  {
    on: "saga_audit_log",
    can: { insert: sagaLogColumns },
    why: "writes history, which it can neither read nor change",
  },
  { on: "saga_audit_log_seq", can: { usage: "all" }, why: "numbers its lines" },
  {
    on: "saga_definition",
    can: {
      select: "all",
      insert: ["type", "version", "hash", "structure"],
      update: ["hash", "structure", "registered_at"],
    },
    why: "compares each saga with the definition its instances began with",
  },
];
