import { random as systemRandom, systemClock, type Clock } from "../runtime/index.ts";

const FIRST_REST_MS = 100;
const LONGEST_REST_MS = 15_000;

/** Destinations whose broker did not answer. Their messages wait uncharged while the others flow. */
export class Resting {
  readonly #topics = new Map<string, { untilMs: number; failures: number }>();
  readonly #clock: Clock;
  readonly #random: () => number;

  constructor(clock: Clock = systemClock, random: () => number = systemRandom) {
    this.#clock = clock;
    this.#random = random;
  }

  /** Another failure in a row; returns how long the destination rests now. */
  rest(topic: string): number {
    const failures = (this.#topics.get(topic)?.failures ?? 0) + 1;
    const bound = Math.min(LONGEST_REST_MS, FIRST_REST_MS * 2 ** Math.min(failures - 1, 20));
    const delayMs = Math.ceil(bound / 2 + (bound / 2) * this.#random());
    this.#topics.set(topic, { untilMs: this.#clock.monotonicMs() + delayMs, failures });
    return delayMs;
  }

  /** It answered: the next failure begins anew. */
  clear(topic: string): void {
    if (this.#topics.size > 0) this.#topics.delete(topic);
  }

  now(): string[] {
    if (this.#topics.size === 0) return [];
    const nowMs = this.#clock.monotonicMs();
    return [...this.#topics].filter(([, { untilMs }]) => untilMs > nowMs).map(([topic]) => topic);
  }

  nextMs(): number {
    let next = Infinity;
    const nowMs = this.#clock.monotonicMs();
    for (const { untilMs } of this.#topics.values())
      if (untilMs > nowMs) next = Math.min(next, untilMs - nowMs);
    return next;
  }
}
