import { Loop, type Service } from "../runtime/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type { Eraser } from "./eraser.ts";
import { sweepAll } from "./sweep.ts";

const IDLE_MS = 60_000;
const BUSY_MS = 5_000;

/** Goes on with erasures that somebody began: their process may have died, or a transaction was still open. */
export class Sweeper implements Service {
  readonly #loop: Loop;

  constructor(eraser: Eraser, observer: Observer) {
    this.#loop = new Loop({
      step: async () => ((await sweepAll(eraser)) > 0 ? BUSY_MS : IDLE_MS),
      maxBackoffMs: IDLE_MS,
      onError: (error) =>
        observer.emit("storage.failed", {
          doing: "sweeping erasures",
          error: error instanceof Error ? error.message : "it failed",
          retryInMs: IDLE_MS,
        }),
    });
  }

  start(): Promise<void> {
    return this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }
}
