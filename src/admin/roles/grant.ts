import type { ObjectName } from "./objects.ts";

export type Privilege = "select" | "insert" | "update" | "delete" | "usage" | "execute";

/** On the whole object, or on these columns of it. */
export type Extent = "all" | readonly string[];

export type Rights = Readonly<Partial<Record<Privilege, Extent>>>;

/** A way of working that takes more than the plain one, and is granted only to who asks for it. */
export type Extra = "optimistic" | "overflow";

/** One line of the table: what a role may do with one thing, and why it must. */
export interface Grant {
  readonly on: ObjectName;
  readonly can: Rights;
  readonly why: string;
  /** Only with this extra. */
  readonly only?: Extra;
}

/** What the lines of a log are made of. Their number, transaction and time come from the database: who writes has no say. */
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

/** All rights in `grants` on each object, put together. */
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
