import type { Grant } from "./grant.ts";
import { schemaObjects, type ObjectName } from "./objects.ts";

const masked = (Object.keys(schemaObjects) as ObjectName[]).filter((name) => name.startsWith("masked_"));

/** Looking. No payload, header, key, error text or name of a person, whatever is asked. */
export const viewerGrants: readonly Grant[] = [
  ...masked.map((on): Grant => ({ on, can: { select: "all" }, why: "sees ids, states, times and sizes" })),
  { on: "consumer_group", can: { select: "all" }, why: "sees who consumes" },
  { on: "subscription", can: { select: "all" }, why: "and what" },
  { on: "receipt", can: { select: "all" }, why: "sees when what was sent" },
  { on: "member", can: { select: "all" }, why: "sees which processes work" },
  { on: "relay_lane", can: { select: ["lane", "scope", "owner", "leased_at"] }, why: "and on what" },
];

/** Deciding about dead letters and sagas. What viewers see comes on top. */
export const operatorGrants: readonly Grant[] = [
  {
    on: "dead_letter",
    can: { select: "all", update: ["closed_at", "closed_as"] },
    why: "reads dead letters, payload and all, and closes them",
  },
  { on: "dead_letter_rearm", can: { execute: "all" }, why: "sends a closed one from the place it held" },
  { on: "dead_letter_free_key", can: { execute: "all" }, why: "lets the key of a discarded one go on" },
  {
    on: "dead_letter_keep_message",
    can: { execute: "all" },
    why: "restores the message of a closed one when its day is gone",
  },
  {
    on: "message",
    can: {
      select: [
        "id",
        "lane",
        "stream",
        "topic",
        "type",
        "written_on",
        "priority",
        "max_attempts",
        "seq",
        "written_at",
      ],
    },
    why: "finds what to send again, without reading it",
  },
  {
    on: "outbox",
    can: { insert: "all", select: ["lane", "seq"] },
    why: "sends again what is in the archive",
  },
  { on: "outbox_seq", can: { usage: "all" }, why: "draws its place" },
  {
    on: "queue",
    can: { insert: "all", select: ["lane"] },
    why: "delivers a dead letter to its consumer again",
  },
  { on: "queue_seq", can: { usage: "all" }, why: "draws its place" },
  { on: "consumer_inbox", can: { select: ["consumer", "consumed_at"] }, why: "counts what was handled" },
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
  {
    on: "saga_audit_log",
    can: { select: "all", insert: "all" },
    why: "reads history, and adds refusals to it",
  },
  { on: "saga_audit_log_seq", can: { usage: "all" }, why: "numbers its lines" },
  { on: "audit_log", can: { select: "all", insert: "all" }, why: "everything it does is written down" },
  { on: "audit_log_seq", can: { usage: "all" }, why: "numbers its lines" },
  { on: "audit_seal", can: { select: "all" }, why: "verifies that nobody changed them" },
];
