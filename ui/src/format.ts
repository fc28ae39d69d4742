// Numbers and times as people read them. Nothing here touches the page.
import type { Count, Measured } from "../../src/dashboard/api-types.ts";

const wholeNumber = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const smallNumber = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

export function formatNumber(value: number): string {
  return Math.abs(value) < 10 && !Number.isInteger(value)
    ? smallNumber.format(value)
    : wholeNumber.format(value);
}

export function formatCount({ count, exact }: Count): string {
  return exact ? formatNumber(count) : `${formatNumber(count)} or more`;
}

/** A count with its noun: "1 dead letter", "1,000 or more dead letters". */
export function countOf(count: Count | number, one: string, many = `${one}s`): string {
  const value = typeof count === "number" ? { count, exact: true } : count;
  return `${formatCount(value)} ${value.count === 1 && value.exact ? one : many}`;
}

export function formatRate(perSecond: number | null): string {
  return perSecond === null ? "–" : formatNumber(perSecond);
}

export function formatMeasuredAge(seconds: Measured | null): string {
  if (seconds === null) return "–";
  return seconds === "unknown" ? "unknown" : formatSeconds(seconds);
}

/** "5 s", "3 min", "2 h 5 min", "4 d 3 h". */
export function formatSeconds(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < 60) return `${whole} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60)
    return minutes < 10 && whole % 60 > 0 ? `${minutes} min ${whole % 60} s` : `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return minutes % 60 === 0 ? `${hours} h` : `${hours} h ${minutes % 60} min`;
  const days = Math.floor(hours / 24);
  return hours % 24 === 0 ? `${days} d` : `${days} d ${hours % 24} h`;
}

/** "12 ms", "1.4 s", "3 min". */
export function formatMs(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return ms < 10_000 ? `${(ms / 1000).toFixed(1)} s` : formatSeconds(ms / 1000);
}

export function formatBytes(bytes: number): string {
  if (bytes < 1024) return `${bytes} bytes`;
  return bytes < 1_048_576
    ? `${smallNumber.format(bytes / 1024)} kB`
    : `${smallNumber.format(bytes / 1_048_576)} MB`;
}

const formats = new Map<string, Intl.DateTimeFormat>();

function format(zone: "local" | "utc", parts: Intl.DateTimeFormatOptions, ms: number): string {
  const key = `${zone} ${JSON.stringify(parts)}`;
  const made =
    formats.get(key) ??
    new Intl.DateTimeFormat("en-GB", { ...parts, hour12: false, ...(zone === "utc" && { timeZone: "UTC" }) });
  formats.set(key, made);
  return made.format(ms);
}

const CLOCK = { hour: "2-digit", minute: "2-digit", second: "2-digit" } as const;
const DAY = { day: "numeric", month: "short" } as const;

/** The time of day; with the day if it is not the day of `nowMs`; with the year if it is another year. */
export function formatTime(at: string | number, zone: "local" | "utc", nowMs: number): string {
  const ms = typeof at === "number" ? at : Date.parse(at);
  if (Number.isNaN(ms)) return String(at);
  const clock = format(zone, CLOCK, ms);
  const isToday =
    format(zone, { ...DAY, year: "numeric" }, ms) === format(zone, { ...DAY, year: "numeric" }, nowMs);
  const isThisYear = format(zone, { year: "numeric" }, ms) === format(zone, { year: "numeric" }, nowMs);
  const day = isToday ? "" : `${format(zone, isThisYear ? DAY : { ...DAY, year: "numeric" }, ms)}, `;
  return `${day}${clock}${zone === "utc" ? " UTC" : ""}`;
}

/** Both readings of one time, for a tooltip and for copies: "19 Nov 2026, 14:02:31 local, 2026-11-19T13:02:31.120Z". */
export function formatBoth(at: string): string {
  const ms = Date.parse(at);
  if (Number.isNaN(ms)) return at;
  return `${format("local", { ...DAY, year: "numeric", ...CLOCK }, ms)} local, ${new Date(ms).toISOString()}`;
}

/** A name for people from a word of the API: "in_progress" becomes "in progress". */
export function spaced(word: string): string {
  return word.replaceAll("_", " ");
}

/** The first characters of a long id. The whole id stays in its link and its copy button. */
export function shortId(id: string): string {
  return id.length > 13 ? `${id.slice(0, 8)}…${id.slice(-4)}` : id;
}
