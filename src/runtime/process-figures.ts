import { monitorEventLoopDelay } from "node:perf_hooks";

/** CPU, memory and event-loop delay of this process. */
export interface ProcessFigures {
  /** Milliseconds since the Unix epoch. */
  readonly startedMs: number;
  readonly cpuMs: number;
  readonly residentBytes: number;
  readonly heapBytes: number;
  /** Event-loop delay since the last `read()`: maximum and 99th percentile. */
  readonly lagMaxMs: number;
  readonly lagP99Ms: number;
}

const RESOLUTION_MS = 20;

/** Measures the delay of the event loop between `start` and `stop`. */
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

// The monitor measures the time between two of its ticks, which includes its own interval.
function toLagMs(nanoseconds: number): number {
  return Math.max(0, nanoseconds / 1e6 - RESOLUTION_MS);
}
