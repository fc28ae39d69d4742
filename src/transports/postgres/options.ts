import { option, readOptions, type OptionsFrom, type SettingsFrom } from "../../options/index.ts";

export const postgresOptions = {
  /** How often an idle consumer reads all of its lanes. Default "1s". */
  pollInterval: option.duration({ default: "1s", min: 10, max: 60_000 }),
};

/** Options of the transport `postgres()`. */
export interface PostgresTransportOptions extends OptionsFrom<typeof postgresOptions> {}

export type PostgresTransportSettings = SettingsFrom<typeof postgresOptions>;

export function postgresSettings(options: PostgresTransportOptions = {}): PostgresTransportSettings {
  return readOptions("postgres", postgresOptions, options);
}
