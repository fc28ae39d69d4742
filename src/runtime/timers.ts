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
