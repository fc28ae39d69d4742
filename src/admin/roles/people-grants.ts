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
  why: "counts and lists the rows of the views by index",
}));

/** Read-only access without payloads, headers, keys, error texts or names of people. */
export const viewerGrants: readonly Grant[] = [
  ...maskedViews.map((on): Grant => ({
    on,
    can: { select: "all" },
    why: "sees ids, states, times and sizes",
  })),
  { on: "consumer_group", can: { select: "all" }, why: "sees the consumers" },
  { on: "subscription", can: { select: "all" }, why: "sees their subscriptions" },
  { on: "consumer_lag", can: { select: "all" }, why: "sees how far each consumer is behind" },
  { on: "receipt", can: { select: "all" }, why: "sees when each message was sent" },
  { on: "member", can: { select: "all" }, why: "sees running processes" },
  {
    on: "relay_lane",
    can: { select: ["lane", "scope", "owner", "leased_at"] },
    why: "sees which process owns which lane",
  },
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
const exceptData = [...messageColumns, "seq", "written_on", "ctid"]; // row positions, to read an archive page by page

/** Actions on dead letters and sagas, in addition to the viewer rights. */
export const operatorGrants: readonly Grant[] = [
  {
    on: "dead_letter",
    can: { select: "all", update: ["closed_at", "closed_as", "fingerprint", "key_order"] },
    why: "reads dead letters with their payloads, groups and closes them",
  },
  {
    on: "dead_letter_edit",
    can: {
      select: "all",
      insert: ["dead_letter_id", "actor", "reason", "before_hash", "after_hash", "contract"],
    },
    why: "records who replaced the data of a dead letter",
  },
  {
    on: "dead_letter_rearm",
    can: { execute: "all" },
    why: "sends a closed dead letter from its old row, which keeps the order of its key",
  },
  { on: "dead_letter_free_key", can: { execute: "all" }, why: "releases the key of a discarded dead letter" },
  {
    on: "dead_letter_keep_copy",
    can: { execute: "all" },
    why: "restores the archived message of a closed dead letter, and stores edited data",
  },
  { on: "dead_letter_move_row", can: { execute: "all" }, why: "puts edited data into the old row" },
  {
    on: "dead_letter_bury_delivery",
    can: { execute: "all" },
    why: "dead-letters a waiting delivery of a consumer",
  },
  {
    on: "dead_letter_bury_waiting",
    can: { execute: "all" },
    why: "dead-letters a waiting message of the outbox",
  },
  {
    on: "message",
    can: { select: exceptData },
    why: "finds messages to explain or send again, without their data",
  },
  {
    on: "scheduled",
    can: { select: [...messageColumns, "due_at"] },
    why: "finds scheduled messages, without their data",
  },
  { on: "outbox", can: { insert: "all", select: "all" }, why: "sends archived messages again" },
  { on: "outbox_seq", can: { usage: "all" }, why: "numbers its rows" },
  {
    on: "outbox_keep_writers_out",
    can: { execute: "all" },
    why: "pauses publishing while keys are sent again",
  },
  {
    on: "outbox_send_again",
    can: { execute: "all" },
    why: "sends archived messages again, ahead of waiting messages",
  },
  { on: "outbox_retry_now", can: { execute: "all" }, why: "retries a failed message immediately" },
  {
    on: "queue",
    can: { insert: "all", select: "all" },
    why: "delivers a dead letter to its consumer again",
  },
  { on: "queue_seq", can: { usage: "all" }, why: "numbers its rows" },
  { on: "retire_consumer", can: { execute: "all" }, why: "retires a decommissioned consumer" },
  {
    on: "lock_subscriptions",
    can: { execute: "all" },
    why: "blocks local delivery to that consumer meanwhile",
  },
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
    why: "sees and counts handled messages, without results",
  },
  {
    on: "flow_event",
    can: { select: "all", update: ["open"] },
    why: "follows declared flows, and marks finished paths",
  },
  {
    on: "saga_instance",
    can: { select: "all", update: ["updated_at"] },
    why: "reads sagas; locking a row requires an update right on one column",
  },
  {
    on: "saga_input",
    can: { select: "all", insert: "all" },
    why: "stores operator decisions as pending input",
  },
  { on: "saga_incident", can: { select: "all" }, why: "reads incidents, which an operator must resolve" },
  { on: "saga_definition", can: { select: "all" }, why: "compares new definitions with the stored ones" },
  {
    on: "saga_audit_log",
    can: { select: "all", insert: sagaLogColumns },
    why: "reads the history, and adds refused actions",
  },
  { on: "saga_audit_log_seq", can: { usage: "all" }, why: "numbers log entries" },
  {
    on: "audit_log",
    can: { select: "all", insert: actionLogColumns },
    why: "records its actions",
  },
  { on: "audit_log_seq", can: { usage: "all" }, why: "numbers log entries" },
  { on: "audit_seal", can: { select: "all" }, why: "verifies that the audit log was not changed" },
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
    why: "destroys and rewraps keys of a data subject, and records after a restore which were destroyed",
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
    why: "records erasures, and rows found later",
  },
  {
    on: "legal_hold",
    can: { select: "all", insert: "all", update: ["released_at", "released_by", "release_reason"] },
    why: "sets and releases legal holds",
  },
  { on: "message", can: { select: "all" }, why: "finds and exports messages about a data subject" },
  { on: "scheduled", can: { select: "all" }, why: "finds scheduled messages about a data subject" },
  {
    on: "dead_letter",
    can: { select: "all", update: ["error_message", "stack_trace"] },
    why: "finds dead letters, and deletes their unencrypted error texts",
  },
  {
    on: "consumer_inbox",
    can: { select: "all", update: ["result"] },
    why: "deletes handler results, which are not encrypted",
  },
  {
    on: "outbox",
    can: { select: ["message_id", "written_on", "last_error"], update: ["last_error"] },
    why: "deletes errors of messages that were not sent",
  },
  {
    on: "queue",
    can: { select: ["message_id", "written_on", "last_error"], update: ["last_error"] },
    why: "deletes errors of messages that were not handled",
  },
  {
    on: "reply",
    can: { select: ["request_id", "outcome", "body"], update: ["body"] },
    why: "deletes replies",
  },
  { on: "blob_chunk", can: { select: "all" }, why: "exports large payloads" },
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
    why: "stops sagas whose data can no longer be decrypted",
  },
  { on: "saga_input", can: { select: "all" }, why: "exports their pending input" },
  {
    on: "saga_incident",
    can: { select: "all", insert: "all", update: ["error", "closed_at", "resolution"] },
    why: "opens and closes their incidents",
  },
  {
    on: "saga_audit_log",
    can: { insert: sagaLogColumns, select: ["saga_id"] },
    why: "records the change in their history",
  },
  { on: "saga_audit_log_seq", can: { usage: "all" }, why: "numbers log entries" },
  { on: "audit_log", can: { insert: actionLogColumns }, why: "records its actions" },
  { on: "audit_log_seq", can: { usage: "all" }, why: "numbers log entries" },
];
