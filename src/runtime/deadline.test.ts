import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { withDeadline } from "./deadline.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

function never<T>(): Promise<T> {
  return new Promise(() => undefined);
}

test("a value in time wins and clears the timer", async () => {
  expect(await withDeadline(Promise.resolve(7), 1000, () => 0)).toBe(7);
  expect(vi.getTimerCount()).toBe(0);
});

test("a failure in time passes through and clears the timer", async () => {
  await expect(withDeadline(Promise.reject(new Error("no")), 1000, () => 0)).rejects.toThrow("no");
  expect(vi.getTimerCount()).toBe(0);
});

test("after the deadline the fallback answers", async () => {
  const result = withDeadline(never<number>(), 1000, () => "late");
  await vi.advanceTimersByTimeAsync(1000);
  expect(await result).toBe("late");
});

test("a fallback that throws rejects", async () => {
  const result = withDeadline(never(), 1000, () => {
    throw new Error("too late");
  });
  const outcome = expect(result).rejects.toThrow("too late");
  await vi.advanceTimersByTimeAsync(1000);
  await outcome;
});

test("a failure after the deadline is dropped, not left unhandled", async () => {
  const unhandled = vi.fn();
  process.once("unhandledRejection", unhandled);
  let fail: (error: Error) => void = () => undefined;
  const slow = new Promise<number>((_, reject) => {
    fail = reject;
  });
  const result = withDeadline(slow, 10, () => 1);
  await vi.advanceTimersByTimeAsync(10);
  fail(new Error("after all"));
  expect(await result).toBe(1);
  vi.useRealTimers();
  await new Promise((resolve) => setImmediate(resolve));
  process.removeListener("unhandledRejection", unhandled);
  expect(unhandled).not.toHaveBeenCalled();
});
