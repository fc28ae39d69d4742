import type { LogLevel } from "./event-catalogue.ts";
import { printable, printableJson } from "./printable.ts";

export interface LogRecord {
  readonly timeMs: number;
  readonly level: Exclude<LogLevel, "silent">;
  readonly event: string;
  readonly fields: Readonly<Record<string, string | number | boolean | null>>;
}

/** For machines: one JSON object, without the line end. */
export function jsonLine({ timeMs, level, event, fields }: LogRecord): string {
  const rounded = Object.fromEntries(Object.entries(fields).map(([name, value]) => [name, round(value)]));
  return printableJson({ time: new Date(timeMs).toISOString(), level, event, ...rounded });
}

const COLOURS = { debug: 90, info: 36, warn: 33, error: 31 } as const;

/** For people: time, level, event, then name=value. */
export function prettyLine({ timeMs, level, event, fields }: LogRecord, colour: boolean): string {
  const paint = (code: number, text: string): string => (colour ? `\u001b[${code}m${text}\u001b[0m` : text);
  const pairs = Object.entries(fields).map(
    ([name, value]) => `${paint(90, `${name}=`)}${formatValue(value)}`,
  );
  const time = new Date(timeMs).toISOString().slice(11, 23);
  return [paint(90, time), paint(COLOURS[level], level.padEnd(5)), printable(event), ...pairs].join(" ");
}

// Nobody reads the nanoseconds of a duration.
function round<T>(value: T): T | number {
  return typeof value === "number" ? Math.round(value * 1_000) / 1_000 : value;
}

function formatValue(value: string | number | boolean | null): string {
  if (typeof value !== "string") return String(round(value));
  return /^[\w.:/@+-]+$/.test(value) ? value : `"${printable(value.replaceAll('"', "'"))}"`;
}
