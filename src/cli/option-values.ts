import { parseDuration } from "../errors/index.ts";
import { type Duration, milliseconds } from "../options/index.ts";
import { systemClock } from "../runtime/index.ts";
import { type CommandInput, type CommandOption, textValue, UsageError } from "./command.ts";

/** Reads a time option: a date, an ISO 8601 time, or a duration before now such as 2h. */
export function timeValue(input: CommandInput, name: string): Date | undefined {
  const text = textValue(input, name);
  if (text === undefined) return undefined;
  const agoMs = parseDuration(text);
  if (agoMs !== undefined) return new Date(systemClock.wallMs() - agoMs);
  const time = new Date(text);
  if (/^\d{4}-\d\d-\d\d(T|$)/.test(text) && !Number.isNaN(time.getTime())) return time;
  throw new UsageError(
    `--${name} must be a time such as 2026-11-16 or 2026-11-16T08:00:00Z, or a duration before now: 30m, 2h, 3d.`,
  );
}

export const keepOption: CommandOption = {
  type: "string",
  value: "<time>",
  help: "Retention, as configured in the service: 30d.",
};

/** Reads the required --keep. It has no default, because the service may be configured with another retention. */
export function readKeep(input: CommandInput): Duration {
  const keep = textValue(input, "keep");
  if (keep === undefined)
    throw new UsageError("Add --keep <time>, such as --keep 30d: everything older is removed.");
  milliseconds("--keep", keep, { max: 36_500 * 86_400_000 });
  return keep as Duration;
}

export function numberValue(input: CommandInput, name: string): number | undefined {
  const given = textValue(input, name);
  if (given === undefined) return undefined;
  if (!/^\d{1,9}$/.test(given)) throw new UsageError(`--${name} must be a whole number.`);
  return Number(given);
}

/** Returns the entries whose value is not undefined. */
export function dropUndefined<T extends object>(entries: T): { [K in keyof T]: NonNullable<T[K]> } {
  const set = Object.entries(entries).filter(([, value]) => value !== undefined);
  return Object.fromEntries(set) as { [K in keyof T]: NonNullable<T[K]> };
}
