import type { Json } from "../message/index.ts";
import { option, readOptions, text, type OptionsFrom, type SettingsFrom } from "../options/index.ts";

/** Actor of an action, and the reason given for it. */
export interface By {
  readonly actor: string;
  readonly reason?: string | null | undefined;
}

/** An action of an operator or of sagabox itself. Saga transitions are recorded in the saga log instead. */
export interface AuditEntry extends By {
  /** Area and verb: `dead_letter.replay`. */
  readonly action: string;
  readonly target: { readonly kind: string; readonly id?: string | null | undefined };
  readonly traceId?: string | null | undefined;
  /** State before and after the action. Small, and never with payloads. */
  readonly before?: Json | undefined;
  readonly after?: Json | undefined;
}

/** `refused`: sagabox rejected the action. `failed`: the action ran into an error. */
export type AuditOutcome = "done" | "refused" | "failed";

const DAY_MS = 86_400_000;

export const auditOptions = {
  /**
   * How long a month is kept after its end. A month that contains entries of a stored saga instance is kept longer.
   * Default "400d".
   */
  retention: option.duration({ default: "400d", min: DAY_MS, max: 36_500 * DAY_MS }),
  /** Interval between two seals. Default "1m". */
  sealEvery: option.duration({ default: "1m", min: 100, max: 3_600_000 }),
};

/** Options of the audit log. */
export interface AuditOptions extends OptionsFrom<typeof auditOptions> {}

export type AuditSettings = SettingsFrom<typeof auditOptions>;

/** Actor and reason of a call from code, for the audit log. */
export interface Acting {
  /** Default: the name of the service. */
  readonly actor?: string;
  readonly reason?: string;
}

/** Validates the options and adds defaults. Throws OPTIONS_INVALID. */
export function readAuditSettings(options: AuditOptions = {}): AuditSettings {
  return readOptions("audit", auditOptions, options);
}

/** Validates actor and reason; `fallback` is the actor if none is given. Throws OPTIONS_INVALID. */
export function readActing(where: string, acting: Acting, fallback: string): By {
  const actor = acting.actor === undefined ? fallback : text(`${where}: actor`, acting.actor.trim());
  if (acting.reason === undefined) return { actor };
  return { actor, reason: text(`${where}: reason`, acting.reason, { max: 1_000 }) };
}
