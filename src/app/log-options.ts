import { oneOf, refuse, rejectUnknownKeys, type EnvironmentOptions } from "../options/index.ts";
import type { LogFormat, LoggerOptions, LogLevel } from "../telemetry/index.ts";

/** Options of `createBus({ log })`. */
export interface LogOptions {
  /** The least severe level that is written. Default: LOG_LEVEL, else "info". */
  readonly level?: LogLevel;
  /** "auto" is pretty on a terminal and JSON everywhere else. Default: SAGABOX_LOG_FORMAT, else "auto". */
  readonly format?: LogFormat;
  /** Writes one complete line. Default: standard error. */
  readonly write?: (line: string) => void;
  /** Writes one line for every step of every saga, regardless of `level`. Default: none. */
  readonly sagas?: (line: string) => void;
}

export type LogSettings = Pick<LoggerOptions, "write"> &
  Required<Pick<LoggerOptions, "level" | "format">> & {
    readonly sagas: ((line: string) => void) | undefined;
  };

const LEVELS = ["debug", "info", "warn", "error", "silent"] as const;
const FORMATS = ["auto", "json", "pretty"] as const;

/** Reads the `log` option. Returns false if logging is off. */
export function readLogSettings(
  log: LogLevel | LogOptions | false | undefined,
  { logLevel, logFormat }: Pick<EnvironmentOptions, "logLevel" | "logFormat">,
): LogSettings | false {
  if (log === false) return false;
  const isObject = typeof log === "object" && log !== null;
  const options: LogOptions = isObject ? log : log === undefined ? {} : { level: log };
  if (isObject) rejectUnknownKeys("log", options, ["level", "format", "write", "sagas"]);
  const { write, sagas } = options;
  return {
    level: oneOf(isObject ? "log.level" : "log", options.level ?? logLevel ?? "info", LEVELS),
    format: oneOf("log.format", options.format ?? logFormat ?? "auto", FORMATS),
    ...(write === undefined ? {} : { write: checkWriter("log.write", write) }),
    sagas: sagas === undefined ? undefined : checkWriter("log.sagas", sagas),
  };
}

function checkWriter(name: string, write: (line: string) => void): (line: string) => void {
  if (typeof write === "function") return write;
  return refuse("OPTIONS_INVALID", `${name} must be a function that takes one line.`, () => undefined);
}
