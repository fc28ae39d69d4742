import { withDeadline } from "../runtime/index.ts";

/** Lets only so many in at once. Whoever waits longer than they may is sent away. */
export class Semaphore {
  readonly #max: number;
  readonly #waiting: (() => void)[] = [];
  #inUse = 0;

  constructor(most: number) {
    this.#max = most;
  }

  /** Resolves with what to call when leaving. */
  async acquire(waitMs: number, sendAway: () => Error): Promise<() => void> {
    if (this.#inUse < this.#max) this.#inUse += 1;
    else await this.#wait(waitMs, sendAway);
    let left = false;
    return () => {
      if (left) return;
      left = true;
      const next = this.#waiting.shift();
      if (next === undefined) this.#inUse -= 1;
      else next();
    };
  }

  #wait(waitMs: number, sendAway: () => Error): Promise<void> {
    let turn: () => void = () => undefined;
    const called = new Promise<void>((resolve) => (turn = resolve));
    this.#waiting.push(turn);
    return withDeadline(called, waitMs, () => {
      const place = this.#waiting.indexOf(turn);
      if (place < 0) return; // called in this very moment
      this.#waiting.splice(place, 1);
      throw sendAway();
    });
  }
}
