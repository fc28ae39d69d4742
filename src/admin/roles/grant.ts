/** Kinds of objects with rights. Partitions are accessed through their table and need no entry. */
export type ObjectKind = "table" | "view" | "sequence" | "function";

/** All objects of the schema. A test compares this list with the database, so that each object has a decision about rights. */
export const schemaObjects = {
  schema_migration: "table",
  message: "table",
  outbox: "table",
  scheduled: "table",
  published_id: "table",
  receipt: "table",
  consumer_group: "table",
  subscription: "table",
  retired_subscription: "table",
  consumer_lag: "table",
  queue: "table",
  member: "table",
  relay_lane: "table",
  consumer_inbox: "table",
  running: "table",
  suspect: "table",
  dead_letter: "table",
  dead_letter_edit: "table",
  outbox_move: "table",
  reply: "table",
  flow_event: "table",
  saga_instance: "table",
  saga_definition: "table",
  saga_input: "table",
  saga_incident: "table",
  saga_audit_log: "table",
  audit_log: "table",
  audit_seal: "table",
  blob_home: "table",
  blob_sweep: "table",
  blob: "table",
  blob_use: "table",
  blob_chunk: "table",
  subject_key: "table",
  index_fingerprint: "table",
  gdpr_erasure_log: "table",
  legal_hold: "table",
  personal_type: "table",
  conservation: "table",
  outbox_events: "view",
  masked_message: "view",
  masked_outbox_events: "view",
  masked_outbox: "view",
  masked_scheduled: "view",
  masked_queue: "view",
  masked_consumer_inbox: "view",
  masked_dead_letter: "view",
  masked_reply: "view",
  masked_flow_event: "view",
  masked_saga_instance: "view",
  masked_saga_input: "view",
  masked_saga_incident: "view",
  masked_saga_audit_log: "view",
  masked_audit_log: "view",
  masked_audit_seal: "view",
  masked_blob: "view",
  masked_subject_key: "view",
  masked_erasure: "view",
  outbox_seq: "sequence",
  queue_seq: "sequence",
  saga_audit_log_seq: "sequence",
  audit_log_seq: "sequence",
  lock_subscriptions: "function",
  dead_letter_rearm: "function",
  dead_letter_find_key_order: "function",
  dead_letter_free_key: "function",
  dead_letter_keep_copy: "function",
  dead_letter_move_row: "function",
  dead_letter_bury_delivery: "function",
  dead_letter_bury_waiting: "function",
  outbox_retry_now: "function",
  outbox_keep_writers_out: "function",
  outbox_send_again: "function",
  retire_consumer: "function",
  outbox_move_of: "function",
  refuse_illegal_move: "function",
  keep_saga_attachments: "function",
  audit_refuse: "function",
  has_message: "function",
  reserve_pages: "function",
  publish: "function",
  publish_refuse: "function",
  publish_hash: "function",
  publish_scramble: "function",
  publish_check_id: "function",
  publish_check_data: "function",
  publish_headers: "function",
  publish_topic: "function",
  publish_traceparent: "function",
  wake_relays: "function",
} as const satisfies Readonly<Record<string, ObjectKind>>;

export type ObjectName = keyof typeof schemaObjects;

export type Privilege = "select" | "insert" | "update" | "delete" | "usage" | "execute";

/** The whole object, or these columns of it. */
export type Extent = "all" | readonly string[];

export type Rights = Readonly<Partial<Record<Privilege, Extent>>>;

/** An optional feature that needs additional rights. */
export type Extra = "optimistic" | "overflow";

/** Rights of a role on one object, and the reason. */
export interface Grant {
  readonly on: ObjectName;
  readonly can: Rights;
  readonly why: string;
  /** Only with this extra. */
  readonly only?: Extra;
}

/** Log columns that a role may write. The database sets id, transaction id and time. */
export const sagaLogColumns = [
  "saga_id",
  "version",
  "event_type",
  "step",
  "old_status",
  "new_status",
  "note",
  "cause",
  "user_id",
  "reason",
  "trace_id",
  "input",
  "metadata",
  "old_state",
  "new_state",
] as const;
export const actionLogColumns = [
  "actor",
  "action",
  "target_kind",
  "target_id",
  "reason",
  "trace_id",
  "before",
  "after",
  "outcome",
  "error_code",
] as const;

/** Combines all grants on each object. */
export function rightsByObject(grants: readonly Grant[]): ReadonlyMap<ObjectName, Rights> {
  const all = new Map<ObjectName, Partial<Record<Privilege, Extent>>>();
  for (const { on, can } of grants) {
    const known = all.get(on) ?? {};
    for (const [privilege, extent] of Object.entries(can) as [Privilege, Extent][]) {
      known[privilege] = mergeExtents(known[privilege], extent);
    }
    all.set(on, known);
  }
  return all;
}

function mergeExtents(one: Extent | undefined, other: Extent): Extent {
  if (one === undefined) return other;
  return one === "all" || other === "all" ? "all" : [...new Set([...one, ...other])];
}
