import { monitorEventLoopDelay } from "node:perf_hooks";

/** How this process does. */
export interface ProcessFigures {
  /** On the wall clock. */
  readonly startedMs: number;
  readonly cpuMs: number;
  readonly residentBytes: number;
  readonly heapBytes: number;
  /** How late the event loop was since the last look: at its worst, and all but one time in a hundred. */
  readonly lagMaxMs: number;
  readonly lagP99Ms: number;
}

const RESOLUTION_MS = 20;

/** Watches the event loop from here on, until `stop`. */
export class ProcessWatch {
  readonly #delay = monitorEventLoopDelay({ resolution: RESOLUTION_MS });
  readonly #startedMs = Date.now() - process.uptime() * 1_000;

  start(): void {
    this.#delay.enable();
  }

  stop(): void {
    this.#delay.disable();
  }

  read(): ProcessFigures {
    const { user, system } = process.cpuUsage();
    const { rss, heapUsed } = process.memoryUsage();
    const [lagMaxMs, lagP99Ms] = [toLagMs(this.#delay.max), toLagMs(this.#delay.percentile(99))];
    this.#delay.reset();
    return {
      startedMs: this.#startedMs,
      cpuMs: (user + system) / 1_000,
      residentBytes: rss,
      heapBytes: heapUsed,
      lagMaxMs,
      lagP99Ms,
    };
  }
}

// The monitor measures the time between two ticks of its own, of which the interval itself is no delay.
function toLagMs(nanoseconds: number): number {
  return Math.max(0, nanoseconds / 1e6 - RESOLUTION_MS);
}
