import type { AuditEntry } from "../audit/index.ts";
import { text } from "../options/index.ts";

/** Why something about a person is done, and by whom. */
export interface Because {
  /** Why, for the log: the number of the request, not the name of the person. */
  readonly reason: string;
  /** Who does it. Default "unknown". */
  readonly actor?: string;
}

/** The same for what is about all persons. */
export type Acted = Partial<Because>;

export function becauseOf({ reason, actor = "unknown" }: Because): Required<Because> {
  return { reason: text("reason", reason, { max: 1_000 }), actor: text("actor", actor) };
}

/** A line of the audit log. The person is in it as a keyed hash. */
export function aboutPerson(action: string, subject: string, by: Required<Because>): AuditEntry {
  return { ...by, action, target: { kind: "person", id: subject } };
}

export function aboutAll(action: string, { reason, actor = "unknown" }: Acted): AuditEntry {
  return {
    action,
    actor: text("actor", actor),
    reason: reason === undefined ? null : text("reason", reason, { max: 1_000 }),
    target: { kind: "keys" },
  };
}
