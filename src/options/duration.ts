import { parseDuration, type Duration } from "../errors/index.ts";
import { reportCheck, refuse } from "./checks.ts";

export type { Duration };

// Longer delays overflow the timers of Node, which then fire immediately.
const MAX_TIMER_MS = 2_147_483_647;

const units = [
  ["d", 86_400_000],
  ["h", 3_600_000],
  ["m", 60_000],
  ["s", 1_000],
] as const;

/** Formats a duration in its largest whole unit: 7d, not 604800000 ms. */
function formatDuration(ms: number): string {
  const [unit, size] = units.find(([, one]) => ms >= one && ms % one === 0) ?? [" ms", 1];
  return `${ms / size}${unit}`;
}

/** Checks a duration such as "30s" or a number of milliseconds and returns milliseconds. Default maximum: 24 days. */
export function milliseconds(
  name: string,
  value: unknown,
  bounds: { min?: number; max?: number } = {},
): number {
  const { min = 0, max = MAX_TIMER_MS } = bounds;
  reportCheck({ name, kind: "duration", value, min, max });
  const ms = parseDuration(value);
  if (ms === undefined) {
    return refuse(
      "OPTIONS_INVALID",
      `${name} must be a duration such as "30s" or "5m", or a number of milliseconds.`,
      min,
    );
  }
  if (ms >= min && ms <= max) return ms;
  return refuse(
    "OPTIONS_INVALID",
    `${name} must be from ${formatDuration(min)} to ${formatDuration(max)}, but is ${formatDuration(ms)}.`,
    min,
  );
}
