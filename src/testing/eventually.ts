import { milliseconds, type Duration } from "../options/index.ts";
import { sleep, systemClock, withDeadline } from "../runtime/index.ts";

export interface ProbeOptions {
  /** How long it is waited for. Default "10s". */
  readonly within?: Duration | number;
}

type Truthy<T> = Exclude<T, false | undefined | null | 0 | "">;

const FIRST_WAIT_MS = 2;
const MAX_WAIT_MS = 50;

/** Looks again and again, and resolves with the first answer that is not false, nothing or an error. */
export async function eventually<T>(
  look: () => T | Promise<T>,
  options: ProbeOptions = {},
): Promise<Truthy<T>> {
  const within = options.within ?? "10s";
  const found = await pollFor(look, within);
  if ("value" in found) return found.value;
  throw new Error(`It did not come true within ${formatTime(within)}: ${String(look)}`, {
    cause: found.error,
  });
}

/** The same, leaving it to the caller what to say when time is over. */
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

/** A length of time, for people. */
export function formatTime(time: Duration | number): string {
  return typeof time === "number" ? `${time} ms` : time;
}

function isTruthy<T>(value: T | undefined): value is Truthy<T> {
  return Boolean(value);
}
