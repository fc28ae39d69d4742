import { parseDuration, type Duration } from "../errors/index.ts";
import { checking, refuse } from "./checks.ts";

export type { Duration };

// Longer waits overflow the timers of Node, which then fire at once.
const longestTimerMs = 2_147_483_647;

/** Whole milliseconds from "30s" or from a number of milliseconds, within bounds (by default up to 24 days). */
export function milliseconds(
  name: string,
  value: unknown,
  bounds: { min?: number; max?: number } = {},
): number {
  const { min = 0, max = longestTimerMs } = bounds;
  checking({ name, kind: "duration", value, min, max });
  const ms = parseDuration(value);
  if (ms === undefined) {
    return refuse(
      "OPTIONS_INVALID",
      `${name} must be a length of time such as "30s", "5m" or a number of milliseconds.`,
      min,
    );
  }
  if (ms >= min && ms <= max) return ms;
  return refuse("OPTIONS_INVALID", `${name} must be from ${min} ms to ${max} ms, but is ${ms} ms.`, min);
}
