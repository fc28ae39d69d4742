import { parseDuration, SagaboxError, type Duration } from "../errors/index.ts";

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
  const ms = parseDuration(value);
  if (ms === undefined) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      `${name} must be a length of time such as "30s", "5m" or a number of milliseconds.`,
    );
  }
  if (ms < min || ms > max) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      `${name} must be from ${min} ms to ${max} ms, but is ${ms} ms.`,
    );
  }
  return ms;
}
