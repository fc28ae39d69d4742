// Clock, randomness, timers, and the start/stop contract of every loop. No other room reads a clock, draws a
// random number or sets a timer, so a test or a simulation can replace all three. This room imports no other
// room.
export { systemClock, type Clock } from "./clock.ts";
export { withDeadline } from "./deadline.ts";
export { Loop, type LoopOptions } from "./loop.ts";
export { ProcessWatch, type ProcessFigures } from "./process-figures.ts";
export { random, randomBytes, randomToken } from "./random.ts";
export type { Service } from "./service.ts";
export { silentSignals, type Signals } from "./signal.ts";
export { sleep, withJitter } from "./sleep.ts";
export { Supervisor, type SupervisedService, type SupervisorOptions } from "./supervisor.ts";
export { hasEnded, locateProcess, thisProcess } from "./this-process.ts";
export { TestSignals, type WaitForSignal } from "./test-signal.ts";
export { after, every, yieldToEventLoop, type CancelTimer, type TimerOptions } from "./timers.ts";
