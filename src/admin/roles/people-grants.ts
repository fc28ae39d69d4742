import { actionLogColumns, type Grant, type ObjectName, sagaLogColumns, schemaObjects } from "./grant.ts";

const maskedViews = (Object.keys(schemaObjects) as ObjectName[]).filter((name) => name.startsWith("masked_"));

// The columns that the views show, on the tables themselves, because counts and lists need their indexes.
const viewerColumns: readonly Grant[] = Object.entries({
  outbox:
    "lane seq topic type message_id written_on priority attempts max_attempts due_at lease_until expires_at again",
  scheduled:
    "id due_at kind type schema_version topic saga_id correlation_id causation_id traceparent source priority " +
    "max_attempts lane written_at expires_at",
  queue:
    "lane seq topic type message_id written_on priority attempts max_attempts due_at lease_until expires_at again",
  message:
    "id kind type schema_version topic saga_id correlation_id causation_id traceparent source priority max_attempts " +
    "lane seq written_on written_at expires_at",
  consumer_inbox:
    "consumer_name event_id source_topic event_type consumed_at processing_duration_ms effect effect_of undone_by",
  dead_letter:
    "id origin consumer message_id kind type schema_version topic saga_id correlation_id causation_id traceparent " +
    "source priority attempts max_attempts reason error_type written_at expires_at failed_at closed_at closed_as held_lane",
  saga_instance: "id saga_type status current_step completed_at",
} satisfies Partial<Record<ObjectName, string>>).map(([on, columns]) => ({
  on: on as ObjectName,
  can: { select: columns.split(" ") },
  why: "counts and lists by index what the views show",
}));

/** Read-only access without payloads, headers, keys, error texts or names of people. */
export const viewerGrants: readonly Grant[] = [
  ...maskedViews.map((on): Grant => ({
    on,
    can: { select: "all" },
    why: "sees ids, states, times and sizes",
  })),
  { on: "consumer_group", can: { select: "all" }, why: "sees who consumes" },
  { on: "subscription", can: { select: "all" }, why: "and what" },
  { on: "receipt", can: { select: "all" }, why: "sees when what was sent" },
  { on: "member", can: { select: "all" }, why: "sees which processes work" },
  { on: "relay_lane", can: { select: ["lane", "scope", "owner", "leased_at"] }, why: "and on what" },
  { on: "conservation", can: { select: "all" }, why: "sees whether everything written is accounted for" },
  ...viewerColumns,
];

const messageColumns = [
  "id",
  "kind",
  "type",
  "schema_version",
  "topic",
  "key",
  "saga_id",
  "correlation_id",
  "causation_id",
  "traceparent",
  "source",
  "priority",
  "max_attempts",
  "lane",
  "stream",
  "headers",
  "written_at",
  "expires_at",
];
const exceptData = [...messageColumns, "seq", "written_on", "ctid"]; // the place of a row, to read an archive page by page

/** Actions on dead letters and sagas, in addition to the viewer rights. */
export const operatorGrants: readonly Grant[] = [
  {
    on: "dead_letter",
    can: { select: "all", update: ["closed_at", "closed_as", "fingerprint", "place"] },
    why: "reads dead letters, payload and all, groups and closes them",
  },
  {
    on: "dead_letter_edit",
    can: { select: "all", insert: ["letter_id", "actor", "reason", "before_hash", "after_hash", "contract"] },
    why: "notes who gave one other data",
  },
  { on: "dead_letter_rearm", can: { execute: "all" }, why: "sends a closed one from the place it held" },
  { on: "dead_letter_free_key", can: { execute: "all" }, why: "lets the key of a discarded one go on" },
  {
    on: "dead_letter_keep_copy",
    can: { execute: "all" },
    why: "restores the message of a closed one when its day is gone, and keeps edited data",
  },
  { on: "dead_letter_move_place", can: { execute: "all" }, why: "and puts them in the place it held" },
  {
    on: "dead_letter_bury_delivery",
    can: { execute: "all" },
    why: "takes a delivery out of a consumer's line",
  },
  { on: "dead_letter_bury_waiting", can: { execute: "all" }, why: "and a message out of the outbox" },
  {
    on: "message",
    can: { select: exceptData },
    why: "finds what to explain or to send again, without its data",
  },
  {
    on: "scheduled",
    can: { select: [...messageColumns, "due_at"] },
    why: "finds what is sent later, without its data",
  },
  { on: "outbox", can: { insert: "all", select: "all" }, why: "sends again what is in the archive" },
  { on: "outbox_seq", can: { usage: "all" }, why: "draws its place" },
  {
    on: "outbox_keep_writers_out",
    can: { execute: "all" },
    why: "pauses publishing while keys are sent again",
  },
  {
    on: "outbox_send_again",
    can: { execute: "all" },
    why: "sends again what is in the archive, in front of what waits",
  },
  { on: "outbox_retry_now", can: { execute: "all" }, why: "has a failed message tried at once" },
  {
    on: "queue",
    can: { insert: "all", select: "all" },
    why: "delivers a dead letter to its consumer again",
  },
  { on: "queue_seq", can: { usage: "all" }, why: "draws its place" },
  { on: "retire_consumer", can: { execute: "all" }, why: "takes away a consumer that is gone for good" },
  { on: "lock_subscriptions", can: { execute: "all" }, why: "and keeps hops to it out meanwhile" },
  {
    on: "consumer_inbox",
    can: {
      select: [
        "ctid",
        "consumer_name",
        "event_id",
        "consumed_at",
        "processing_duration_ms",
        "effect",
        "effect_of",
        "undone_by",
      ],
    },
    why: "sees and counts what was handled, without results",
  },
  {
    on: "flow_event",
    can: { select: "all", update: ["open"] },
    why: "follows declared flows, and marks finished paths",
  },
  {
    on: "saga_instance",
    can: { select: "all", update: ["updated_at"] },
    why: "reads sagas; the right to change one time is what locking a row needs",
  },
  { on: "saga_mail", can: { select: "all", insert: "all" }, why: "leaves its decision for a worker" },
  { on: "saga_incident", can: { select: "all" }, why: "reads what a person has to decide" },
  { on: "saga_definition", can: { select: "all" }, why: "compares new definitions with the stored ones" },
  {
    on: "saga_audit_log",
    can: { select: "all", insert: sagaLogColumns },
    why: "reads history, and adds refusals to it",
  },
  { on: "saga_audit_log_seq", can: { usage: "all" }, why: "numbers its lines" },
  {
    on: "audit_log",
    can: { select: "all", insert: actionLogColumns },
    why: "everything it does is written down",
  },
  { on: "audit_log_seq", can: { usage: "all" }, why: "numbers its lines" },
  { on: "audit_seal", can: { select: "all" }, why: "verifies that they were not changed" },
];

/** Erasure, legal holds and export of a data subject's data, in addition to publishing. */
export const privacyGrants: readonly Grant[] = [
  {
    on: "subject_key",
    can: {
      select: "all",
      insert: ["key_id", "subject", "created_at", "erased_at"],
      update: ["wrapped", "kek_id", "erased_at"],
    },
    why: "destroys a person's keys, wraps them anew, and notes after a restore which were destroyed",
  },
  {
    on: "gdpr_erasure_log",
    can: {
      select: "all",
      insert: [
        "subject",
        "erased_at",
        "reason",
        "actor",
        "key_ids",
        "to_scrub",
        "scrubbed",
        "proof",
        "swept_at",
      ],
      update: ["key_ids", "to_scrub", "proof", "scrubbed", "swept_at"],
    },
    why: "writes what was erased, and what was found later",
  },
  {
    on: "legal_hold",
    can: { select: "all", insert: "all", update: ["released_at", "released_by", "release_reason"] },
    why: "keeps a person from being erased, and lets go",
  },
  { on: "message", can: { select: "all" }, why: "finds and hands out what concerns a person" },
  { on: "scheduled", can: { select: "all" }, why: "and what is sent later" },
  {
    on: "dead_letter",
    can: { select: "all", update: ["error_message", "stack_trace"] },
    why: "and what died, whose error texts were never sealed",
  },
  {
    on: "consumer_inbox",
    can: { select: "all", update: ["result"] },
    why: "and what handlers returned, which was not either",
  },
  {
    on: "outbox",
    can: { select: ["message_id", "written_on", "last_error"], update: ["last_error"] },
    why: "and why a message was not sent",
  },
  {
    on: "queue",
    can: { select: ["message_id", "written_on", "last_error"], update: ["last_error"] },
    why: "or not handled yet",
  },
  {
    on: "reply",
    can: { select: ["request_id", "outcome", "body"], update: ["body"] },
    why: "or why a request failed",
  },
  { on: "blob_chunk", can: { select: "all" }, why: "and large payloads" },
  {
    on: "saga_instance",
    can: {
      select: "all",
      update: [
        "status",
        "due_at",
        "claimed_by",
        "claimed_until",
        "claims",
        "version",
        "updated_at",
        "last_error",
        "completed_at",
      ],
    },
    why: "parks sagas that can no longer read what they need",
  },
  { on: "saga_mail", can: { select: "all" }, why: "shows what waits for them" },
  {
    on: "saga_incident",
    can: { select: "all", insert: "all", update: ["error", "closed_at", "resolution"] },
    why: "and calls a person for them",
  },
  {
    on: "saga_audit_log",
    can: { insert: sagaLogColumns, select: ["saga_id"] },
    why: "with a line in their history",
  },
  { on: "saga_audit_log_seq", can: { usage: "all" }, why: "numbers its lines" },
  { on: "audit_log", can: { insert: actionLogColumns }, why: "everything it does is written down" },
  { on: "audit_log_seq", can: { usage: "all" }, why: "numbers its lines" },
];
