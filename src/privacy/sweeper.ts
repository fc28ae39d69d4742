import { PeriodicService, type FailedRound } from "../runtime/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type { Eraser } from "./eraser.ts";
import { sweepAll } from "./sweep.ts";

const IDLE_MS = 60_000;
const BUSY_MS = 5_000;

/** Continues unfinished erasures: the process that began one may have died, or a transaction was still open. */
export class Sweeper extends PeriodicService {
  readonly #eraser: Eraser;
  readonly #observer: Observer;

  constructor(eraser: Eraser, observer: Observer) {
    super({ everyMs: IDLE_MS });
    this.#eraser = eraser;
    this.#observer = observer;
  }

  protected override async runRound(): Promise<number> {
    return (await sweepAll(this.#eraser)) > 0 ? BUSY_MS : IDLE_MS;
  }

  protected override onFailure({ error, retryInMs }: FailedRound): void {
    const text = error instanceof Error ? error.message : "it failed";
    this.#observer.emit("storage.failed", { doing: "sweeping erasures", error: text, retryInMs });
  }
}
