import { milliseconds, rejectUnknownKeys, text, type Duration } from "../options/index.ts";
import type { By } from "./entry.ts";

/** What a user may say about the audit log. */
export interface AuditOptions {
  /**
   * How long a month is kept after its end. A month in which an instance that is not forgotten yet has lines stays
   * longer. Default 400 days.
   */
  readonly retention?: Duration | number;
  /** The longest time between two seals while there is something to seal. Default "1m". */
  readonly sealEvery?: Duration | number;
}

export interface AuditSettings {
  readonly retentionMs: number;
  readonly sealEveryMs: number;
}

/** Who acts, in code that does not say so. */
export interface Acting {
  /** Who does it. Default: the name of the service. */
  readonly actor?: string;
  /** Why. */
  readonly reason?: string;
}

const DAY_MS = 86_400_000;

export function readAuditSettings(options: AuditOptions = {}): AuditSettings {
  rejectUnknownKeys("audit", options, ["retention", "sealEvery"]);
  const { retention = 400 * DAY_MS, sealEvery = 60_000 } = options;
  return Object.freeze({
    retentionMs: milliseconds("audit.retention", retention, { min: DAY_MS, max: 36_500 * DAY_MS }),
    sealEveryMs: milliseconds("audit.sealEvery", sealEvery, { min: 100, max: 3_600_000 }),
  });
}

/** Checked, with the default for whoever does not say who they are. */
export function readActing(where: string, acting: Acting, fallback: string): By {
  const actor = acting.actor === undefined ? fallback : text(`${where}: actor`, acting.actor.trim());
  if (acting.reason === undefined) return { actor };
  return { actor, reason: text(`${where}: reason`, acting.reason, { max: 1_000 }) };
}
