import { oneOf, refuse, rejectUnknownKeys, type EnvironmentOptions } from "../options/index.ts";
import type { LogFormat, LoggerOptions, LogLevel } from "../telemetry/index.ts";

export interface LogOptions {
  /** The least important lines that are written. Default: LOG_LEVEL, else "info". */
  readonly level?: LogLevel;
  /** "auto" is pretty on a terminal and JSON everywhere else. Default: SAGABOX_LOG_FORMAT, else "auto". */
  readonly format?: LogFormat;
  /** Where whole lines go. Default: standard error. */
  readonly write?: (line: string) => void;
  /** Where a line for every step of every saga goes, whatever the level; those of the log are written there as well. */
  readonly sagas?: (line: string) => void;
}

export type LogSettings = Pick<LoggerOptions, "write"> &
  Required<Pick<LoggerOptions, "level" | "format">> & {
    readonly sagas: ((line: string) => void) | undefined;
  };

const LEVELS = ["debug", "info", "warn", "error", "silent"] as const;
const FORMATS = ["auto", "json", "pretty"] as const;

/** False for silence. */
export function readLogSettings(
  given: LogLevel | LogOptions | false | undefined,
  { logLevel, logFormat }: Pick<EnvironmentOptions, "logLevel" | "logFormat">,
): LogSettings | false {
  if (given === false) return false;
  const whole = typeof given === "object" && given !== null;
  const options: LogOptions = whole ? given : given === undefined ? {} : { level: given };
  if (whole) rejectUnknownKeys("log", options, ["level", "format", "write", "sagas"]);
  const { write, sagas } = options;
  return {
    level: oneOf(whole ? "log.level" : "log", options.level ?? logLevel ?? "info", LEVELS),
    format: oneOf("log.format", options.format ?? logFormat ?? "auto", FORMATS),
    ...(write === undefined ? {} : { write: checkWriter("log.write", write) }),
    sagas: sagas === undefined ? undefined : checkWriter("log.sagas", sagas),
  };
}

function checkWriter(name: string, write: (line: string) => void): (line: string) => void {
  if (typeof write === "function") return write;
  return refuse("OPTIONS_INVALID", `${name} must be a function that takes a line.`, () => undefined);
}
