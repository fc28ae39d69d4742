import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { backoffMs, retryWithBackoff } from "./backoff.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

const whole = { firstMs: 100, maxMs: 1_000, jitter: 0 };

/** Fails `times` times and then returns "done". */
function failing(times: number) {
  let tries = 0;
  const work = async (): Promise<string> => {
    tries += 1;
    if (tries <= times) throw new Error(`failure ${tries}`);
    return "done";
  };
  return { work, tries: () => tries };
}

test("the wait doubles with each failure, up to the maximum", () => {
  expect([0, 1, 2, 3, 4, 5, 5_000].map((failures) => backoffMs(whole, failures))).toEqual([
    100, 100, 200, 400, 800, 1_000, 1_000,
  ]);
});

test("a wait that starts at zero stays zero", () => {
  expect(backoffMs({ firstMs: 0, maxMs: 1_000, factor: 100 }, 5_000)).toBe(0);
});

test.each([
  [undefined, 50, 75, 100],
  [0.2, 80, 90, 100],
  [1, 0, 50, 100],
])("a jitter of %s takes that share of the bound at random", (jitter, least, middle, most) => {
  const backoff = { firstMs: 100, maxMs: 1_000, ...(jitter === undefined ? {} : { jitter }) };
  const waits = [0, 0.5, 1].map((drawn) => backoffMs(backoff, 1, () => drawn));
  expect(waits.map(Math.round)).toEqual([least, middle, most]);
});

test("work that fails is tried again after growing waits and its result is returned", async () => {
  const { work, tries } = failing(3);
  const waits: number[] = [];
  const result = retryWithBackoff(work, {
    backoff: whole,
    onFailure: ({ failures, retryInMs }) => waits.push(failures, retryInMs),
  });
  await vi.advanceTimersByTimeAsync(699);
  expect(tries()).toBe(3);
  await vi.advanceTimersByTimeAsync(1);
  expect(await result).toBe("done");
  expect(waits).toEqual([1, 100, 2, 200, 3, 400]);
});

test("the retries end after the maximum number of tries, without a last wait", async () => {
  const { work, tries } = failing(5);
  const result = retryWithBackoff(work, { backoff: whole, maxTries: 2 });
  await vi.advanceTimersByTimeAsync(100);
  expect(await result).toBeUndefined();
  expect(tries()).toBe(2);
  expect(vi.getTimerCount()).toBe(0);
});

test("an abort ends the wait; the first try is made even under an aborted signal", async () => {
  const stop = new AbortController();
  const { work, tries } = failing(5);
  const result = retryWithBackoff(work, { backoff: whole, signal: stop.signal });
  await vi.advanceTimersByTimeAsync(50);
  stop.abort();
  expect(await result).toBeUndefined();
  expect(await retryWithBackoff(work, { signal: stop.signal })).toBeUndefined();
  expect(tries()).toBe(2);
  expect(vi.getTimerCount()).toBe(0);
});

test("the retries end when they should not continue", async () => {
  const { work, tries } = failing(5);
  let isLost = false;
  const result = retryWithBackoff(work, {
    backoff: whole,
    shouldContinue: () => !isLost,
    onFailure: ({ failures }) => (isLost = failures === 2),
  });
  await vi.advanceTimersByTimeAsync(1_000);
  expect(await result).toBeUndefined();
  expect(tries()).toBe(2);
});

test("an error that is not retryable is thrown at once", async () => {
  const { work } = failing(1);
  await expect(retryWithBackoff(work, { isRetryable: () => false })).rejects.toThrow("failure 1");
  expect(vi.getTimerCount()).toBe(0);
});

test("an error thrown by the failure listener ends the retries", async () => {
  const { work } = failing(1);
  const onFailure = (): void => {
    throw new Error("out of time");
  };
  await expect(retryWithBackoff(work, { onFailure })).rejects.toThrow("out of time");
  expect(vi.getTimerCount()).toBe(0);
});
