import type { Grant } from "./grant.ts";

/** Who owns which lanes; the same for all who work on them. */
export const laneGrants: readonly Grant[] = [
  {
    on: "member",
    can: { select: "all", insert: "all", update: ["lease_until", "backend"], delete: "all" },
    why: "joins, keeps its lease, and removes members that are gone",
  },
  {
    on: "relay_lane",
    can: { select: "all", update: ["owner", "fence", "token", "leased_at"] },
    why: "takes lanes and gives them back",
  },
];

/** Sending. It moves the narrow rows and cannot change a message. */
export const relayGrants: readonly Grant[] = [
  ...laneGrants,
  { on: "message", can: { select: "all" }, why: "reads what it sends" },
  {
    on: "outbox",
    can: { select: "all", update: ["attempts", "due_at", "lease_until", "last_error"], delete: "all" },
    why: "settles what it has sent, and notes failures",
  },
  { on: "outbox_seq", can: { usage: "all", select: "all" }, why: "knows how far the line goes" },
  {
    on: "scheduled",
    can: { select: "all", update: ["due_at"], delete: "all" },
    why: "takes what is due; the right to change one time is what locking a row needs",
  },
  { on: "message", can: { insert: "all" }, why: "writes what was scheduled, when it is due" },
  { on: "outbox", can: { insert: "all" }, why: "and puts it in line" },
  { on: "receipt", can: { insert: "all" }, why: "notes what was sent" },
  {
    on: "dead_letter",
    can: { insert: "all", select: ["closed_at", "failed_at", "consumer", "type"] },
    why: "buries, and counts the open ones by consumer and type",
  },
  {
    on: "queue",
    can: { insert: "all", select: ["lane", "topic", "due_at"] },
    why: "delivers where PostgreSQL is the transport",
  },
  { on: "queue_seq", can: { usage: "all" }, why: "draws the place of a delivery" },
  { on: "subscription", can: { select: ["topic", "group_id"] }, why: "finds who gets it" },
];
