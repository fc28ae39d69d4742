import { milliseconds, rejectUnknownKeys, type Duration } from "../options/index.ts";

export interface LaneOptions {
  /** How long a worker keeps its lanes after its last renewal. Default "30s", minimum "1s". */
  readonly lease?: Duration | number;
}

export interface LaneSettings {
  readonly leaseMs: number;
  /** How often a worker renews its lease and rebalances lanes, in milliseconds. */
  readonly tickMs: number;
}

export function laneSettings(options: LaneOptions = {}): LaneSettings {
  rejectUnknownKeys("lanes", options, ["lease"]);
  const leaseMs = milliseconds("lanes.lease", options.lease ?? "30s", { min: 1_000, max: 3_600_000 });
  return Object.freeze({ leaseMs, tickMs: Math.min(500, leaseMs / 8) });
}
