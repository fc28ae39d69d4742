import {
  environmentVariables,
  option,
  readOptions,
  type EnvironmentOptions,
  type OptionsFrom,
  type SettingsFrom,
} from "../options/index.ts";
import type { LogLevel } from "../telemetry/index.ts";

const { logLevel: levelVariable, logFormat: formatVariable } = environmentVariables;

export const logOptions = {
  /** The least severe level that is written. Default: SAGABOX_LOG_LEVEL, else "info". */
  level: levelVariable.option,
  /** "auto" is pretty on a terminal and JSON everywhere else. Default: SAGABOX_LOG_FORMAT, else "auto". */
  format: formatVariable.option,
  /** Writes one complete line. Default: standard error. */
  write: option.callback<(line: string) => void>(),
  /** Writes one line for every step of every saga, regardless of `level`. Default: none. */
  sagas: option.callback<(line: string) => void>(),
};

/** Options of `createBus({ log })`. */
export interface LogOptions extends OptionsFrom<typeof logOptions> {}

export type LogSettings = SettingsFrom<typeof logOptions>;

/** Reads the `log` option. Returns false if logging is off. */
export function readLogSettings(
  log: LogLevel | LogOptions | false | undefined,
  { logLevel: level, logFormat: format }: Pick<EnvironmentOptions, "logLevel" | "logFormat">,
): LogSettings | false {
  if (log === false) return false;
  const fallback = { ...(level && { level }), ...(format && { format }) };
  if (typeof log === "object" && log !== null) return readOptions("log", logOptions, log, { fallback });
  const settings = readOptions("log", logOptions, {}, { fallback });
  return log === undefined
    ? settings
    : Object.freeze({ ...settings, level: levelVariable.option.check("log", log) });
}
