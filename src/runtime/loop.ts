import { random } from "./random.ts";
import type { Service } from "./service.ts";
import { sleep, withJitter } from "./sleep.ts";
import { after, yieldToEventLoop } from "./timers.ts";

export interface LoopOptions {
  /**
   * One round of work. Returns how many milliseconds to wait before the next one: 0 goes on at once,
   * Infinity waits for `wake()`. The signal aborts when the loop is asked to stop.
   */
  readonly step: (signal: AbortSignal) => Promise<number>;
  /** Hears of each failed round, with the number of failures in a row. Its own failures are ignored. */
  readonly onError?: (error: unknown, failuresInARow: number) => void;
  /** The wait after a first failure. Default 100. */
  readonly backoffMs?: number;
  /** The longest wait after repeated failures. Default 10 000. */
  readonly maxBackoffMs?: number;
}

/**
 * Runs a step again and again until it is stopped. A step that throws is reported and tried again after a
 * growing wait, so one failure never ends the loop nor the process.
 */
export class Loop implements Service {
  readonly #options: LoopOptions;
  #run: { readonly stopping: AbortController; readonly ended: Promise<void> } | undefined;
  #endWait: (() => void) | undefined;
  #wakeRequested = false;

  constructor(options: LoopOptions) {
    this.#options = options;
  }

  get running(): boolean {
    return this.#run !== undefined;
  }

  async start(): Promise<void> {
    if (this.#run?.stopping.signal.aborted === true) await this.stop();
    if (this.#run !== undefined) return;
    const stopping = new AbortController();
    this.#run = { stopping, ended: this.#repeat(stopping.signal) };
  }

  /** Asks the step to end and waits until it has. */
  async stop(): Promise<void> {
    const run = this.#run;
    if (run === undefined) return;
    run.stopping.abort();
    this.#endWait?.();
    await run.ended;
    if (this.#run === run) this.#run = undefined;
  }

  /** Ends the current wait; during a step, makes the next one follow at once. A failing loop keeps its wait. */
  wake(): void {
    this.#wakeRequested = true;
    this.#endWait?.();
  }

  async #repeat(stopping: AbortSignal): Promise<void> {
    let failures = 0;
    while (!stopping.aborted) {
      this.#wakeRequested = false;
      try {
        const waitMs = await this.#options.step(stopping);
        failures = 0;
        await this.#wait(waitMs, stopping);
      } catch (error) {
        // The step was told to end and says so; that is no failure.
        if (stopping.aborted && error === stopping.reason) return;
        failures += 1;
        this.#report(error, failures);
        await sleep(this.#backoff(failures), stopping);
      }
    }
  }

  async #wait(waitMs: number, stopping: AbortSignal): Promise<void> {
    // A step that never waits must still let sockets and timers have their turn.
    if (waitMs <= 0 || this.#wakeRequested) return yieldToEventLoop();
    if (stopping.aborted) return;
    // By hand: a loop that is woken thousands of times a second would feel the price of an AbortController.
    await new Promise<void>((resolve) => {
      const cancel = after(waitMs, resolve);
      this.#endWait = () => {
        cancel();
        resolve();
      };
    });
    this.#endWait = undefined;
  }

  #backoff(failures: number): number {
    const { backoffMs = 100, maxBackoffMs = 10_000 } = this.#options;
    return withJitter(Math.min(maxBackoffMs, backoffMs * 2 ** Math.min(failures - 1, 30)), 0.2, random);
  }

  #report(error: unknown, failures: number): void {
    try {
      this.#options.onError?.(error, failures);
    } catch {
      // Telling about a failure must not become one.
    }
  }
}
