import { consumerGrants, sagaGrants } from "./consumer-grants.ts";
import { rightsByObject, type Extra, type Grant, type Rights } from "./grant.ts";
import type { ObjectName } from "./objects.ts";
import { operatorGrants, privacyGrants, viewerGrants } from "./people-grants.ts";
import { relayGrants } from "./relay-grants.ts";
import { writerGrants } from "./writer-grants.ts";

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
  /** Who connects as it. */
  readonly who: string;
  /** What remains in the hands of whoever has stolen its password. */
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

/** The one table of rights: the SQL, the guide and the tests are made from it. */
export const roles: Readonly<Record<RoleName, Role>> = {
  owner: {
    who: '`sagabox migrate up`, and one worker with `parts: ["upkeep"]`: only an owner may attach and drop partitions',
    still: "do everything in the schema",
    includes: [],
    grants: [],
  },
  writer: {
    who: "services that publish",
    still: "flood the outbox, send any message in anybody's name, and learn the ids of all",
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
    who: "whoever erases, holds or hands out a person's data with `bus.privacy`",
    still: "read every message, and destroy keys for ever",
    includes: ["writer"],
    grants: privacyGrants,
  },
};

/** Everything a role may do, what it has from others included. The owner needs no grants. */
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
