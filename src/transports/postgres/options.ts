import { milliseconds, rejectUnknownKeys, type Duration } from "../../options/index.ts";

export interface PostgresTransportOptions {
  /** How long an idle consumer waits before it looks everywhere. Default "1s". */
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
