import { parseDuration } from "../errors/index.ts";
import { systemClock } from "../runtime/index.ts";
import { textValue, UsageError, type CommandInput } from "./command.ts";

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
