import { backoffMs } from "./backoff.ts";
import type { Service } from "./service.ts";
import { after, sleep, yieldToEventLoop } from "./time.ts";

export interface LoopOptions {
  /**
   * One round of work. Returns how many milliseconds to wait before the next one: 0 continues at once,
   * Infinity waits for `wake()`. The signal aborts when the loop is asked to stop.
   */
  readonly step: (signal: AbortSignal) => Promise<number>;
  /**
   * Called after each failed round, with the number of failures in a row and the wait before the next round in
   * milliseconds. Errors it throws are ignored.
   */
  readonly onError?: (error: unknown, failuresInARow: number, retryInMs: number) => void;
  /** Upper bound of the wait after a first failure, in milliseconds. Default 100. */
  readonly backoffMs?: number;
  /** Upper bound of the wait after repeated failures, in milliseconds. Default 10 000. */
  readonly maxBackoffMs?: number;
}

/**
 * Runs a step repeatedly until it is stopped. A step that throws is reported and retried after a growing
 * wait, so a failure ends neither the loop nor the process.
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

  /** Aborts the step's signal and waits until the step has ended. */
  async stop(): Promise<void> {
    const run = this.#run;
    if (run === undefined) return;
    run.stopping.abort();
    this.#endWait?.();
    await run.ended;
    if (this.#run === run) this.#run = undefined;
  }

  /**
   * Ends the current wait. During a step, makes the next one follow at once. A failing loop keeps its wait.
   */
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
        // A step that throws the abort reason has stopped on request, which is not a failure.
        if (stopping.aborted && error === stopping.reason) return;
        failures += 1;
        const retryInMs = this.#waitAfter(failures);
        this.#report(error, failures, retryInMs);
        await sleep(retryInMs, stopping);
      }
    }
  }

  async #wait(waitMs: number, stopping: AbortSignal): Promise<void> {
    // A step that never waits must still let sockets and timers run.
    if (waitMs <= 0 || this.#wakeRequested) return yieldToEventLoop();
    if (stopping.aborted) return;
    // No AbortController here: it is too expensive for a loop that is woken thousands of times a second.
    await new Promise<void>((resolve) => {
      const cancel = after(waitMs, resolve);
      this.#endWait = () => {
        cancel();
        resolve();
      };
    });
    this.#endWait = undefined;
  }

  #waitAfter(failures: number): number {
    const { backoffMs: firstMs = 100, maxBackoffMs: maxMs = 10_000 } = this.#options;
    return Math.round(backoffMs({ firstMs, maxMs, jitter: 0.2 }, failures));
  }

  #report(error: unknown, failures: number, retryInMs: number): void {
    try {
      this.#options.onError?.(error, failures, retryInMs);
    } catch {
      // A failing error hook must not end the loop.
    }
  }
}
