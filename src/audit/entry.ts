import type { Json } from "../message/index.ts";

/** Who does something, and why. */
export interface By {
  readonly actor: string;
  readonly reason?: string | null | undefined;
}

/** Something that was decided, by a person or by the house itself, and that is no transition of a saga. */
export interface AuditEntry extends By {
  /** Room first: `dead_letter.replay`. */
  readonly action: string;
  readonly target: { readonly kind: string; readonly id?: string | null | undefined };
  readonly traceId?: string | null | undefined;
  /** What was so before, and what is so afterwards: small, and without payloads. */
  readonly before?: Json | undefined;
  readonly after?: Json | undefined;
}

/** `refused`: we said no. `failed`: it broke. */
export type AuditOutcome = "done" | "refused" | "failed";
