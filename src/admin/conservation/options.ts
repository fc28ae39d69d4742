import { milliseconds, rejectUnknownKeys, type Duration } from "../../options/index.ts";

/** What a user may say about the check that nothing is lost. It is always on. */
export interface ConservationOptions {
  /** How long the check rests between two looks. Default "1m", from "1s" to "1h". */
  readonly every?: Duration | number;
}

export interface ConservationSettings {
  readonly everyMs: number;
}

export function conservationSettings(options: ConservationOptions = {}): ConservationSettings {
  rejectUnknownKeys("conservation", options, ["every"]);
  const bounds = { min: 1_000, max: 3_600_000 };
  return Object.freeze({ everyMs: milliseconds("conservation.every", options.every ?? "1m", bounds) });
}
