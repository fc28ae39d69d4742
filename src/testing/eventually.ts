import { milliseconds, type Duration } from "../options/index.ts";
import { sleep, systemClock, withDeadline } from "../runtime/index.ts";

export interface ProbeOptions {
  /** How long to wait before failing. Default "10s". */
  readonly within?: Duration | number;
}

type Truthy<T> = Exclude<T, false | undefined | null | 0 | "">;

const FIRST_WAIT_MS = 2;
const MAX_WAIT_MS = 50;

/**
 * Calls `look` repeatedly and resolves with its first truthy result. Errors count as a falsy result. Throws when no
 * result was truthy within the time; the cause is the last error.
 */
export async function eventually<T>(
  look: () => T | Promise<T>,
  options: ProbeOptions = {},
): Promise<Truthy<T>> {
  const within = options.within ?? "10s";
  const found = await pollFor(look, within);
  if ("value" in found) return found.value;
  throw new Error(`The condition was not met within ${formatTime(within)}: ${String(look)}`, {
    cause: found.error,
  });
}

/** Calls `look` until its result is truthy. Returns the last error, if any, when the time is over. */
export async function pollFor<T>(
  look: () => T | Promise<T>,
  within: Duration | number,
): Promise<{ readonly value: Truthy<T> } | { readonly error: unknown }> {
  const endMs = systemClock.monotonicMs() + milliseconds("within", within);
  let error: unknown;
  for (let waitMs = FIRST_WAIT_MS; ; waitMs = Math.min(MAX_WAIT_MS, waitMs * 1.5)) {
    const leftMs = Math.max(1, endMs - systemClock.monotonicMs());
    try {
      const value = await withDeadline(Promise.resolve().then(look), leftMs, () => undefined);
      if (isTruthy(value)) return { value };
      error = undefined;
    } catch (thrown) {
      error = thrown;
    }
    if (systemClock.monotonicMs() + waitMs >= endMs) return { error };
    await sleep(waitMs);
  }
}

/** Formats a duration for error messages. */
export function formatTime(time: Duration | number): string {
  return typeof time === "number" ? `${time} ms` : time;
}

function isTruthy<T>(value: T | undefined): value is Truthy<T> {
  return Boolean(value);
}
