/** Source of time for every room. Tests and simulations pass their own. */
export interface Clock {
  /**
   * Milliseconds since the Unix epoch. May jump, so use it for timestamps that people read, never for
   * waiting.
   */
  wallMs(): number;
  /** Milliseconds since a fixed moment. Never goes back; use it to measure waits and leases. */
  monotonicMs(): number;
}

export const systemClock: Clock = Object.freeze({
  wallMs: () => Date.now(),
  monotonicMs: () => performance.now(),
});

/** Cancels a timer. Calling it again, or after the timer fired, does nothing. */
export type CancelTimer = () => void;

export interface TimerOptions {
  /** Lets the process exit while the timer is still pending. Default false. */
  readonly unref?: boolean;
}

// Node fires a timer at once if its delay does not fit into 31 bits, so longer waits are split.
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Runs `action` once, after `delayMs`. Any delay up to Infinity is honoured. */
export function after(delayMs: number, action: () => void, options: TimerOptions = {}): CancelTimer {
  let remainingMs = Math.max(0, delayMs);
  let timer: NodeJS.Timeout;
  const arm = (): void => {
    const partMs = Math.min(remainingMs, MAX_TIMER_MS);
    remainingMs -= partMs;
    timer = setTimeout(() => (remainingMs > 0 ? arm() : action()), partMs);
    if (options.unref === true) timer.unref();
  };
  arm();
  return () => clearTimeout(timer);
}

/** Runs `action` every `intervalMs`, first after one interval. */
export function every(intervalMs: number, action: () => void, options: TimerOptions = {}): CancelTimer {
  const timer = setInterval(action, Math.min(Math.max(1, intervalMs), MAX_TIMER_MS));
  if (options.unref === true) timer.unref();
  return () => clearInterval(timer);
}

/** Lets pending I/O and timers run before the caller continues. */
export function yieldToEventLoop(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** Waits `ms`. Resolves true when the time has passed, false as soon as `signal` aborts; never rejects. */
export function sleep(ms: number, signal?: AbortSignal): Promise<boolean> {
  if (signal?.aborted === true) return Promise.resolve(false);
  return new Promise((resolve) => {
    const cancel = after(ms, () => {
      signal?.removeEventListener("abort", onAbort);
      resolve(true);
    });
    const onAbort = (): void => {
      cancel();
      resolve(false);
    };
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}

/**
 * Waits for `promise` for at most `ms`. After that, `onTimeout` returns the result or throws the error to
 * reject with. The promise itself keeps running; its late value or failure is dropped and never unhandled.
 */
export function withDeadline<T, U = T>(
  promise: Promise<T>,
  ms: number,
  onTimeout: () => U | Promise<U>,
): Promise<T | U> {
  return new Promise((resolve, reject) => {
    const cancel = after(ms, () => {
      try {
        resolve(onTimeout());
      } catch (error) {
        reject(error);
      }
    });
    promise.then(
      (value) => {
        cancel();
        resolve(value);
      },
      (error: unknown) => {
        cancel();
        reject(error);
      },
    );
  });
}
