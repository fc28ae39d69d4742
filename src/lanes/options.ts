import { environmentVariables, readOptions, type OptionsFrom, type SettingsFrom } from "../options/index.ts";

const laneOptions = {
  /** How long a worker keeps its lanes after its last renewal, from "1s" to "1h". Default "30s". */
  lease: environmentVariables.lease.option,
};

export interface LaneOptions extends OptionsFrom<typeof laneOptions> {}

export interface LaneSettings extends SettingsFrom<typeof laneOptions> {
  /** How often a worker renews its lease and rebalances lanes, in milliseconds. */
  readonly tickMs: number;
}

export function laneSettings(options: LaneOptions = {}): LaneSettings {
  const { leaseMs } = readOptions("lanes", laneOptions, options);
  return Object.freeze({ leaseMs, tickMs: Math.min(500, leaseMs / 8) });
}
