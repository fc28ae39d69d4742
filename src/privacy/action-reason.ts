import type { AuditEntry } from "../audit/index.ts";
import { text } from "../options/index.ts";

/** Why something about a person is done, and by whom. */
export interface ActionReason {
  /** Why, for the log: the number of the request, not the name of the person. */
  readonly reason: string;
  /** Who does it. Default "unknown". */
  readonly actor?: string;
}

/** The same for what is about all persons. */
export type OptionalActionReason = Partial<ActionReason>;

export function checkActionReason({ reason, actor = "unknown" }: ActionReason): Required<ActionReason> {
  return { reason: text("reason", reason, { max: 1_000 }), actor: text("actor", actor) };
}

/** A line of the audit log. The person is in it as a keyed hash. */
export function subjectAuditEntry(action: string, subject: string, by: Required<ActionReason>): AuditEntry {
  return { ...by, action, target: { kind: "person", id: subject } };
}

export function keysAuditEntry(
  action: string,
  { reason, actor = "unknown" }: OptionalActionReason,
): AuditEntry {
  return {
    action,
    actor: text("actor", actor),
    reason: reason === undefined ? null : text("reason", reason, { max: 1_000 }),
    target: { kind: "keys" },
  };
}
