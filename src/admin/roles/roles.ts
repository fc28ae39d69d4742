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

/** Rights to measure how far consumers are behind, for every worker. */
const lagGrants: readonly Grant[] = [
  {
    on: "consumer_lag",
    can: { select: "all", insert: "all", update: ["transport", "claimed_at", "measured_at", "lags"] },
    why: "stores how far each consumer is behind",
  },
  { on: "consumer_group", can: { select: ["id", "name"] }, why: "finds the consumer of each lane" },
  { on: "subscription", can: { select: ["topic", "group_id"] }, why: "finds the topics of each consumer" },
  { on: "queue", can: { select: ["lane", "seq", "topic", "due_at"] }, why: "counts waiting messages" },
];

/** Sending. It moves the narrow rows and cannot change a message. */
const relayGrants: readonly Grant[] = [
  ...laneGrants,
  ...lagGrants,
  { on: "message", can: { select: "all" }, why: "reads what it sends" },
  {
    on: "outbox",
    can: { select: "all", update: ["attempts", "due_at", "lease_until", "last_error"], delete: "all" },
    why: "settles what it has sent, and records failures",
  },
  { on: "outbox_seq", can: { usage: "all", select: "all" }, why: "reads the highest row number written" },
  {
    on: "scheduled",
    can: { select: "all", update: ["due_at"], delete: "all" },
    why: "takes due messages; locking a row requires an update right on one column",
  },
  { on: "message", can: { insert: "all" }, why: "writes scheduled messages when they are due" },
  { on: "outbox", can: { insert: "all" }, why: "adds its outbox row" },
  { on: "receipt", can: { insert: "all" }, why: "records what was sent" },
  {
    on: "dead_letter",
    can: { insert: "all", select: ["closed_at", "failed_at", "consumer", "type"] },
    why: "dead-letters messages, and counts open dead letters by consumer and type",
  },
  {
    on: "queue",
    can: { insert: "all", select: ["lane", "topic", "due_at"] },
    why: "delivers messages where PostgreSQL is the transport",
  },
  { on: "queue_seq", can: { usage: "all" }, why: "numbers deliveries" },
  { on: "subscription", can: { select: ["topic", "group_id"] }, why: "finds the consumers of a topic" },
];

/** Handling what arrives, retries and dead letters included. */
const consumerGrants: readonly Grant[] = [
  ...laneGrants,
  ...lagGrants,
  { on: "message", can: { select: "all" }, why: "reads what is delivered" },
  { on: "blob_chunk", can: { select: "all" }, why: "reads large payloads, where the store is this database" },
  { on: "consumer_group", can: { select: "all", insert: "all" }, why: "creates its group" },
  { on: "relay_lane", can: { insert: "all" }, why: "creates the lanes of its group" },
  { on: "subscription", can: { select: "all", insert: "all" }, why: "subscribes its group to topics" },
  {
    on: "retired_subscription",
    can: { select: "all" },
    why: "reads until when a topic had another consumer",
  },
  {
    on: "lock_subscriptions",
    can: { execute: "all" },
    why: "blocks local delivery while a new group copies earlier messages",
  },
  {
    on: "outbox",
    can: { select: ["lane", "seq"] },
    why: "excludes messages from that copy that are delivered later anyway",
  },
  {
    on: "queue",
    can: { select: "all", insert: "all", update: ["attempts", "last_error", "due_at"], delete: "all" },
    why: "settles deliveries, retries them, and parks messages that must not block a broker",
  },
  { on: "queue_seq", can: { usage: "all", select: "all" }, why: "reads the highest row number written" },
  {
    on: "consumer_inbox",
    can: {
      select: "all",
      insert: "all",
      update: ["processing_duration_ms", "result", "effect", "effect_of", "undone_by"],
    },
    why: "records handled messages, and cannot delete them",
  },
  {
    on: "running",
    can: { select: "all", insert: "all", update: ["event_ids", "alone", "started_at"], delete: "all" },
    why: "lists running messages, so that a message that kills its process is found",
  },
  {
    on: "suspect",
    can: { select: "all", insert: "all", update: ["crashes", "noticed_at"], delete: "all" },
    why: "counts how often a message may have killed its process",
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
    why: "stores the state of each saga",
  },
  {
    on: "saga_input",
    can: { select: "all", insert: "all", update: ["saga_id", "correlation_id"], delete: "all" },
    why: "stores and consumes pending input",
  },
  {
    on: "saga_incident",
    can: { select: "all", insert: "all", update: ["steps", "error", "closed_at", "resolution"] },
    why: "opens incidents, and records how they were resolved",
  },
  {
    on: "dead_letter",
    can: { select: ["message_id", "origin", "closed_at"], update: ["closed_at", "closed_as"] },
    why: "discards the dead letters of commands whose incident was resolved",
  },
  {
    on: "saga_audit_log",
    can: { insert: sagaLogColumns },
    why: "writes the history, which it can neither read nor change",
  },
  { on: "saga_audit_log_seq", can: { usage: "all" }, why: "numbers log entries" },
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

/** Publishing from SQL. The function runs with the rights of its owner. */
const publisherGrants: readonly Grant[] = [
  { on: "publish", can: { execute: "all" }, why: "writes messages, without a right on any table" },
  { on: "wake_relays", can: { execute: "all" }, why: "tells relays about messages after a COMMIT" },
];

/** Publishing. It adds rows, and reads only ids and row numbers of messages. */
const writerGrants: readonly Grant[] = [
  {
    on: "message",
    can: { insert: "all", select: ["id", "seq"] },
    why: "writes messages, and reads only whether an id is already used",
  },
  { on: "outbox", can: { insert: "all" }, why: "adds their outbox rows" },
  { on: "outbox_seq", can: { usage: "all" }, why: "numbers them" },
  {
    on: "scheduled",
    can: { insert: "all", select: ["id"] },
    why: "writes scheduled messages, and reads only whether an id is already used",
  },
  { on: "has_message", can: { execute: "all" }, why: "looks for an id in both tables" },
  {
    on: "published_id",
    can: { insert: "all", select: ["id"] },
    why: "finds out which chosen ids were new",
  },
  {
    on: "subject_key",
    can: {
      insert: ["key_id", "subject", "wrapped", "kek_id"],
      select: ["key_id", "subject", "wrapped", "kek_id", "created_xid", "created_at", "erased_at"],
    },
    why: "encrypts with the wrapped key of a data subject, or creates the first key",
  },
  {
    on: "index_fingerprint",
    can: { insert: ["fingerprint"], select: ["id", "fingerprint", "xid"] },
    why: "checks that it pseudonymises subjects like the other services",
  },
  {
    on: "personal_type",
    can: { select: "all", insert: ["type", "service", "fields"], update: ["fields", "registered_at"] },
    why: "records which types have personal fields, so that SQL cannot publish them unencrypted",
  },
  { on: "blob_home", can: { select: ["id"] }, why: "uses the id as prefix for the keys of large payloads" },
  {
    on: "blob",
    can: { insert: "all", select: ["key", "doomed_at"], update: ["bytes", "sha256", "stored_at"] },
    why: "records large payloads before they are stored, and size and checksum after the upload",
  },
  {
    on: "blob_use",
    can: { insert: "all", select: ["key", "used_by"] },
    why: "records which message needs them",
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
    why: "deletes the rows of messages it has sent itself, or releases their lease",
    only: "optimistic",
  },
  { on: "receipt", can: { insert: "all" }, why: "records what it has sent itself", only: "optimistic" },
  {
    on: "queue",
    can: { insert: "all", select: ["lane"] },
    why: "delivers messages itself where PostgreSQL is the transport",
    only: "optimistic",
  },
  { on: "queue_seq", can: { usage: "all" }, why: "numbers these deliveries", only: "optimistic" },
  {
    on: "subscription",
    can: { select: ["topic", "group_id"] },
    why: "finds the consumers of a topic",
    only: "optimistic",
  },
  { on: "outbox", can: { select: ["topic", "due_at"] }, why: "counts waiting messages", only: "overflow" },
  { on: "queue", can: { select: ["topic", "due_at"] }, why: "counts waiting messages", only: "overflow" },
];

export const roleNames = [
  "owner",
  "publisher",
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
  publisher: {
    who: "what publishes with the SQL function `publish`: triggers, other languages, people in psql",
    still: "flood the outbox, and send any message in the name of any service",
    includes: [],
    grants: publisherGrants,
  },
  writer: {
    who: "services that publish",
    still: "flood the outbox, send any message in the name of any service, and learn all message ids",
    includes: ["publisher"],
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
    who: "people and dashboards with read-only access",
    still: "learn how many messages of which type are sent when",
    includes: [],
    grants: [migrationGrant, ...viewerGrants],
  },
  operator: {
    who: "people who decide about dead letters and sagas",
    still: "read dead letters and saga state, and send old messages again",
    includes: ["viewer"],
    grants: operatorGrants,
  },
  privacy: {
    who: "services that erase, hold or export a data subject's data with `bus.privacy`",
    still: "read every message, and destroy keys permanently",
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
