import { milliseconds, rejectUnknownKeys, type Duration } from "../../options/index.ts";

export interface PostgresTransportOptions {
  /** How often an idle consumer reads all of its lanes. Default "1s", between 10 ms and 1 minute. */
  readonly pollInterval?: Duration | number;
}

export interface PostgresTransportSettings {
  readonly pollMs: number;
}

export function postgresSettings(options: PostgresTransportOptions = {}): PostgresTransportSettings {
  rejectUnknownKeys("postgres", options, ["pollInterval"]);
  return Object.freeze({
    pollMs: milliseconds("postgres.pollInterval", options.pollInterval ?? "1s", { min: 10, max: 60_000 }),
  });
}
