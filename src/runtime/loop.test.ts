import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { Loop } from "./loop.ts";
import { PeriodicService, type FailedRound } from "./service.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

function counting(waitMs: number) {
  let steps = 0;
  const loop = new Loop({
    step: async () => {
      steps += 1;
      return waitMs;
    },
  });
  return { loop, steps: () => steps };
}

test("the step runs again after the wait it returned", async () => {
  const { loop, steps } = counting(100);
  await loop.start();
  await vi.advanceTimersByTimeAsync(250);
  expect(steps()).toBe(3);
  await loop.stop();
});

test("a step that returns no wait still lets other callbacks run", async () => {
  const { loop, steps } = counting(0);
  await loop.start();
  await vi.advanceTimersByTimeAsync(1);
  const before = steps();
  await vi.advanceTimersByTimeAsync(1);
  expect(steps()).toBeGreaterThan(before);
  const stopped = loop.stop();
  await vi.advanceTimersByTimeAsync(1);
  await stopped;
  expect(loop.running).toBe(false);
});

test("wake ends an infinite wait", async () => {
  const { loop, steps } = counting(Infinity);
  await loop.start();
  await vi.advanceTimersByTimeAsync(10_000);
  expect(steps()).toBe(1);
  loop.wake();
  await vi.advanceTimersByTimeAsync(0);
  expect(steps()).toBe(2);
  await loop.stop();
});

test("a wake during a step is not lost", async () => {
  let steps = 0;
  const loop: Loop = new Loop({
    step: async () => {
      steps += 1;
      if (steps === 1) loop.wake();
      return Infinity;
    },
  });
  await loop.start();
  await vi.advanceTimersByTimeAsync(1);
  expect(steps).toBe(2);
  await loop.stop();
});

test("a throwing step is reported and retried with growing waits", async () => {
  const failures: number[] = [];
  const loop = new Loop({
    step: () => Promise.reject(new Error("no database")),
    onError: (_error, inARow) => failures.push(inARow),
    backoffMs: 100,
    maxBackoffMs: 400,
  });
  await loop.start();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(failures.slice(0, 3)).toEqual([1, 2, 3]);
  expect(failures.length).toBeLessThan(60_000 / 300);
  expect(failures.length).toBeGreaterThan(60_000 / 500);
  await loop.stop();
});

test("an error hook that throws does not end the loop", async () => {
  let steps = 0;
  const loop = new Loop({
    step: async () => {
      steps += 1;
      throw new Error("step");
    },
    onError: () => {
      throw new Error("hook");
    },
    backoffMs: 10,
  });
  await loop.start();
  await vi.advanceTimersByTimeAsync(1000);
  expect(steps).toBeGreaterThan(2);
  await loop.stop();
});

test("stopping aborts the step's signal and waits for the step to end", async () => {
  let ended = false;
  const reported = vi.fn();
  const loop = new Loop({
    step: async (signal) => {
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      ended = true;
      signal.throwIfAborted();
      return 0;
    },
    onError: reported,
  });
  await loop.start();
  await loop.stop();
  expect(ended).toBe(true);
  expect(reported).not.toHaveBeenCalled();
});

test("stopping interrupts the wait and leaves no timer", async () => {
  const { loop } = counting(60_000);
  await loop.start();
  await vi.advanceTimersByTimeAsync(0);
  await loop.stop();
  expect(vi.getTimerCount()).toBe(0);
});

test("starting twice runs one loop; stopping twice and stopping before the start are harmless", async () => {
  const { loop, steps } = counting(100);
  await loop.stop();
  await loop.start();
  await loop.start();
  await vi.advanceTimersByTimeAsync(50);
  expect(steps()).toBe(1);
  await Promise.all([loop.stop(), loop.stop()]);
  await loop.stop();
  expect(loop.running).toBe(false);
});

test("a stopped loop can be started again, even before the stop has finished", async () => {
  const { loop, steps } = counting(100);
  await loop.start();
  await vi.advanceTimersByTimeAsync(0);
  const stopping = loop.stop();
  await Promise.all([stopping, loop.start()]);
  await vi.advanceTimersByTimeAsync(0);
  expect(loop.running).toBe(true);
  expect(steps()).toBe(2);
  await loop.stop();
});

class Counter extends PeriodicService {
  rounds = 0;
  readonly failures: FailedRound[] = [];
  readonly #waits: readonly (number | Error)[];

  constructor(waits: readonly (number | Error)[]) {
    super({ everyMs: 1_000, backoff: { firstMs: 100, maxMs: 100 } });
    this.#waits = waits;
  }

  protected override async runRound(): Promise<number | void> {
    const wait = this.#waits[this.rounds++];
    if (wait instanceof Error) throw wait;
    return wait;
  }

  protected override onFailure(failure: FailedRound): void {
    this.failures.push(failure);
  }
}

test("a periodic service runs a round at the start and after each interval, until it is stopped", async () => {
  const service = new Counter([]);
  await service.start();
  await vi.advanceTimersByTimeAsync(2_500);
  expect(service.rounds).toBe(3);
  await service.stop();
  expect([service.running, vi.getTimerCount()]).toEqual([false, 0]);
});

test("a round may ask for another wait, which wake() ends", async () => {
  const service = new Counter([50, Infinity]);
  await service.start();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(service.rounds).toBe(2);
  service.wake();
  await vi.advanceTimersByTimeAsync(0);
  expect(service.rounds).toBe(3);
  await service.stop();
});

test("a failed round is reported with its wait and tried again", async () => {
  const error = new Error("no database");
  const service = new Counter([error, error]);
  await service.start();
  await vi.advanceTimersByTimeAsync(200);
  expect(service.rounds).toBe(3);
  expect(service.failures.map(({ failuresInARow }) => failuresInARow)).toEqual([1, 2]);
  expect(service.failures.every(({ retryInMs }) => retryInMs >= 80 && retryInMs <= 100)).toBe(true);
  await service.stop();
});
