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
  return printableJson({ time: new Date(timeMs).toISOString(), level, event, ...fields });
}

const COLOURS = { debug: 90, info: 36, warn: 33, error: 31 } as const;

/** For people: time, level, event, then name=value. */
export function prettyLine({ timeMs, level, event, fields }: LogRecord, colour: boolean): string {
  const paint = (code: number, text: string): string => (colour ? `\u001b[${code}m${text}\u001b[0m` : text);
  const pairs = Object.entries(fields).map(([name, value]) => `${paint(90, `${name}=`)}${shown(value)}`);
  const time = new Date(timeMs).toISOString().slice(11, 23);
  return [paint(90, time), paint(COLOURS[level], level.padEnd(5)), printable(event), ...pairs].join(" ");
}

function shown(value: string | number | boolean | null): string {
  if (typeof value !== "string") return String(value);
  return /^[\w.:/@+-]+$/.test(value) ? value : `"${printable(value.replaceAll('"', "'"))}"`;
}
