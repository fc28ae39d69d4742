import {
  type Extra,
  type Grant,
  type ObjectName,
  type Rights,
  rightsByObject,
  sagaLogColumns,
} from "./grant.ts";
import { operatorGrants, privacyGrants, viewerGrants } from "./people-grants.ts";

/** Rights to own lanes, for relays and consumers. */
const laneGrants: readonly Grant[] = [
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
const relayGrants: readonly Grant[] = [
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

/** Handling what arrives, retries and dead letters included. */
const consumerGrants: readonly Grant[] = [
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
    why: "dead-letters once, and answers why a request failed",
  },
  {
    on: "reply",
    can: { select: "all", insert: "all", update: ["outcome", "body", "arrived_at"] },
    why: "stores replies for waiting requests",
  },
  {
    on: "flow_event",
    can: { select: "all", insert: "all", update: ["open"] },
    why: "records declared flows",
  },
];

/** Running sagas, in addition to the consumer rights, because sagas receive replies and events as a consumer. */
const sagaGrants: readonly Grant[] = [
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
        "completed_at",
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
      insert: ["saga_type", "version", "hash", "structure"],
      update: ["hash", "structure", "registered_at"],
    },
    why: "compares each saga with the definition its instances began with",
  },
];

/** Publishing. It adds rows, and of messages it reads the ids and numbers alone. */
const writerGrants: readonly Grant[] = [
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
    why: "checks that it pseudonymises subjects like the other services",
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

export const roleNames = [
  "owner",
  "writer",
  "relay",
  "consumer",
  "saga",
  "worker",
  "viewer",
  "operator",
  "privacy",
] as const;

export type RoleName = (typeof roleNames)[number];

export interface Role {
  /** Processes and people that connect with the role. */
  readonly who: string;
  /** What an attacker with its password could do. */
  readonly still: string;
  /** Roles whose rights it has as well. */
  readonly includes: readonly RoleName[];
  readonly grants: readonly Grant[];
}

const migrationGrant: Grant = {
  on: "schema_migration",
  can: { select: "all" },
  why: "finds out whether the schema is new enough",
};

/** All rights of all roles. The SQL, the guide and the tests are generated from this table. */
export const roles: Readonly<Record<RoleName, Role>> = {
  owner: {
    who: '`sagabox migrate up`, and one worker with `parts: ["upkeep"]`: only an owner may attach and drop partitions',
    still: "do everything in the schema",
    includes: [],
    grants: [],
  },
  writer: {
    who: "services that publish",
    still: "flood the outbox, send any message in the name of any service, and learn all message ids",
    includes: [],
    grants: [migrationGrant, ...writerGrants],
  },
  relay: {
    who: 'workers with `parts: ["relay"]`',
    still: "read every message, and delete from the outbox what was not sent",
    includes: [],
    grants: [migrationGrant, ...relayGrants],
  },
  consumer: {
    who: 'workers with `parts: ["consumers"]`, and services that wait for replies',
    still: "read every message, and take deliveries from other consumers",
    includes: ["writer"],
    grants: consumerGrants,
  },
  saga: {
    who: 'workers with `parts: ["sagas"]`, and services that start sagas',
    still: "change the state of any saga",
    includes: ["consumer"],
    grants: sagaGrants,
  },
  worker: {
    who: 'workers with `parts: ["relay", "consumers", "sagas"]`',
    still: "do what relay and saga can",
    includes: ["relay", "saga"],
    grants: [],
  },
  viewer: {
    who: "people and dashboards that look",
    still: "learn how much of what happens when",
    includes: [],
    grants: [migrationGrant, ...viewerGrants],
  },
  operator: {
    who: "people who decide about dead letters and sagas",
    still: "read dead letters and the state of sagas, and send again what was sent before",
    includes: ["viewer"],
    grants: operatorGrants,
  },
  privacy: {
    who: "services that erase, hold or export a data subject's data with `bus.privacy`",
    still: "read every message, and destroy keys for ever",
    includes: ["writer"],
    grants: privacyGrants,
  },
};

/** Lists all grants of a role, including inherited ones. The owner needs no grants. */
export function listGrants(role: RoleName, extras: readonly Extra[] = []): readonly Grant[] {
  const { includes, grants } = roles[role];
  const own = grants.filter(({ only }) => only === undefined || extras.includes(only));
  return [...includes.flatMap((other) => listGrants(other, extras)), ...own];
}

export function rightsForRole(
  role: RoleName,
  extras: readonly Extra[] = [],
): ReadonlyMap<ObjectName, Rights> {
  return rightsByObject(listGrants(role, extras));
}
