// Clock, randomness, timers, retries, and the start/stop contract of every loop. No other room reads a clock, draws
// a random number or sets a timer, so a test or a simulation can replace all three. This room imports no other
// room.
export { backoffMs, retryWithBackoff, type Backoff, type FailedTry, type RetryLimits } from "./backoff.ts";
export { Loop, type LoopOptions } from "./loop.ts";
export { hasEnded, locateProcess, ProcessWatch, thisProcess, type ProcessFigures } from "./process.ts";
export { random, randomBytes, randomToken } from "./random.ts";
export {
  PeriodicService,
  Supervisor,
  type FailedRound,
  type PeriodicOptions,
  type Service,
  type SupervisedService,
  type SupervisorOptions,
} from "./service.ts";
export { silentSignals, TestSignals, type Signals, type WaitForSignal } from "./process.ts";
export {
  after,
  every,
  sleep,
  systemClock,
  withDeadline,
  yieldToEventLoop,
  type CancelTimer,
  type Clock,
  type TimerOptions,
} from "./time.ts";
