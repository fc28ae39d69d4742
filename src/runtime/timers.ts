/** Ends a timer. Calling it again, or after the timer fired, does nothing. */
export type CancelTimer = () => void;

export interface TimerOptions {
  /** Let the process end although the timer is still running. Default false. */
  readonly unref?: boolean;
}

// Node fires a timer at once when its delay does not fit 31 bits, so longer waits are made of several.
const MAX_TIMER_MS = 2 ** 31 - 1;

/** Runs `action` once, `delayMs` from now. Any delay up to Infinity is honoured. */
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

/** Runs `action` every `intervalMs`, for the first time one interval from now. */
export function every(intervalMs: number, action: () => void, options: TimerOptions = {}): CancelTimer {
  const timer = setInterval(action, Math.min(Math.max(1, intervalMs), MAX_TIMER_MS));
  if (options.unref === true) timer.unref();
  return () => clearInterval(timer);
}

/** Lets pending I/O and timers have their turn before the caller goes on. */
export function yieldToEventLoop(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
