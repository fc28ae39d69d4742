import type { Grant } from "./grant.ts";

/** Publishing. It adds rows, and of messages it reads the ids and numbers alone. */
export const writerGrants: readonly Grant[] = [
  {
    on: "message",
    can: { insert: "all", select: ["id", "seq"] },
    why: "writes messages, of which it reads only whether an id is there already",
  },
  { on: "outbox", can: { insert: "all" }, why: "puts them in line" },
  { on: "outbox_seq", can: { usage: "all" }, why: "draws their place" },
  {
    on: "scheduled",
    can: { insert: "all", select: ["id"] },
    why: "writes messages for later, of which it reads the same",
  },
  { on: "has_message", can: { execute: "all" }, why: "looks for an id in both" },
  {
    on: "published_id",
    can: { insert: "all", select: ["id"] },
    why: "learns which ids of its own choice were new",
  },
  {
    on: "subject_key",
    can: {
      insert: ["key_id", "subject", "wrapped", "kek_id"],
      select: ["key_id", "subject", "wrapped", "kek_id", "created_xid", "created_at", "erased_at"],
    },
    why: "seals with a person's key, wrapped by one that is kept elsewhere, or makes the first",
  },
  {
    on: "index_fingerprint",
    can: { insert: ["fingerprint"], select: ["id", "fingerprint", "xid"] },
    why: "learns whether it names persons as the others do",
  },
  { on: "blob_home", can: { select: ["id"] }, why: "begins the keys of large payloads with it" },
  {
    on: "blob",
    can: { insert: "all", select: ["key", "doomed_at"], update: ["bytes", "sha256", "stored_at"] },
    why: "notes large payloads before they are stored, and what an upload was in the end",
  },
  {
    on: "blob_use",
    can: { insert: "all", select: ["key", "used_by"] },
    why: "notes which message needs them",
  },
  { on: "blob_chunk", can: { insert: "all" }, why: "stores them, where the store is this database" },
  {
    on: "outbox",
    can: {
      select: [
        "lane",
        "seq",
        "stream",
        "topic",
        "type",
        "message_id",
        "written_on",
        "priority",
        "max_attempts",
        "due_at",
        "lease_until",
        "expires_at",
        "again",
      ],
      update: ["lease_until"],
      delete: "all",
    },
    why: "takes what it has sent itself out of the line, or gives it back",
    only: "optimistic",
  },
  { on: "receipt", can: { insert: "all" }, why: "notes what it has sent itself", only: "optimistic" },
  {
    on: "queue",
    can: { insert: "all", select: ["lane"] },
    why: "delivers itself where PostgreSQL is the transport",
    only: "optimistic",
  },
  { on: "queue_seq", can: { usage: "all" }, why: "draws the place of those deliveries", only: "optimistic" },
  {
    on: "subscription",
    can: { select: ["topic", "group_id"] },
    why: "finds who gets those deliveries",
    only: "optimistic",
  },
  { on: "outbox", can: { select: ["topic", "due_at"] }, why: "counts what waits", only: "overflow" },
  { on: "queue", can: { select: ["topic", "due_at"] }, why: "counts what waits", only: "overflow" },
];
