import { milliseconds, rejectUnknownKeys, type Duration } from "../options/index.ts";

export interface LaneOptions {
  /** How long a member's lanes stay its own after its last sign of life. Default "30s", at least "1s". */
  readonly lease?: Duration | number;
}

export interface LaneSettings {
  readonly leaseMs: number;
  /** How often a member looks for lanes that are free or too many. */
  readonly tickMs: number;
}

export function laneSettings(options: LaneOptions = {}): LaneSettings {
  rejectUnknownKeys("lanes", options, ["lease"]);
  const leaseMs = milliseconds("lanes.lease", options.lease ?? "30s", { min: 1_000, max: 3_600_000 });
  return Object.freeze({ leaseMs, tickMs: Math.min(500, leaseMs / 8) });
}
