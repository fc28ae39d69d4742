import { withDeadline } from "../runtime/index.ts";

/** Lets only so many in at once. Whoever waits longer than they may is sent away. */
export class Gate {
  readonly #most: number;
  readonly #waiting: (() => void)[] = [];
  #inside = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** Resolves with what to call when leaving. */
  async enter(waitMs: number, sendAway: () => Error): Promise<() => void> {
    if (this.#inside < this.#most) this.#inside += 1;
    else await this.#wait(waitMs, sendAway);
    let left = false;
    return () => {
      if (left) return;
      left = true;
      const next = this.#waiting.shift();
      if (next === undefined) this.#inside -= 1;
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
