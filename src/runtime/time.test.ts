import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { after, every, sleep, systemClock, withDeadline, yieldToEventLoop } from "./time.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
});

test("the wall clock reads the time of day", () => {
  const beforeMs = Date.now();
  const wallMs = systemClock.wallMs();
  expect(wallMs).toBeGreaterThanOrEqual(beforeMs);
  expect(wallMs).toBeLessThanOrEqual(Date.now());
});

test("the monotonic clock never goes back", () => {
  const readings = Array.from({ length: 1000 }, () => systemClock.monotonicMs());
  expect(readings).toEqual([...readings].sort((a, b) => a - b));
});

test("after runs its action once", () => {
  const action = vi.fn();
  after(100, action);
  vi.advanceTimersByTime(99);
  expect(action).not.toHaveBeenCalled();
  vi.advanceTimersByTime(1000);
  expect(action).toHaveBeenCalledTimes(1);
});

test("a cancelled timer never fires", () => {
  const action = vi.fn();
  const cancel = after(100, action);
  cancel();
  cancel();
  vi.advanceTimersByTime(1000);
  expect(action).not.toHaveBeenCalled();
});

test("a delay of 60 days is honoured, although Node limits timers to 25 days", () => {
  const action = vi.fn();
  const dayMs = 86_400_000;
  after(60 * dayMs, action);
  vi.advanceTimersByTime(59 * dayMs);
  expect(action).not.toHaveBeenCalled();
  vi.advanceTimersByTime(dayMs);
  expect(action).toHaveBeenCalledTimes(1);
});

test("a long timer can be cancelled in its second part", () => {
  const action = vi.fn();
  const dayMs = 86_400_000;
  const cancel = after(60 * dayMs, action);
  vi.advanceTimersByTime(40 * dayMs);
  cancel();
  vi.advanceTimersByTime(40 * dayMs);
  expect(action).not.toHaveBeenCalled();
});

test("every repeats until it is cancelled", () => {
  const action = vi.fn();
  const cancel = every(10, action, { unref: true });
  vi.advanceTimersByTime(35);
  cancel();
  vi.advanceTimersByTime(100);
  expect(action).toHaveBeenCalledTimes(3);
});

test("an unreferenced timer does not keep the process alive", () => {
  vi.useRealTimers(); // the spy must replace the real timer
  const unref = vi.spyOn(globalThis, "setTimeout");
  const cancel = after(100, () => undefined, { unref: true });
  expect(unref.mock.results[0]?.value.hasRef()).toBe(false);
  cancel();
});

test("yieldToEventLoop lets a pending callback run first", async () => {
  vi.useRealTimers();
  const order: string[] = [];
  setImmediate(() => order.push("callback"));
  await yieldToEventLoop();
  order.push("after the yield");
  expect(order).toEqual(["callback", "after the yield"]);
});

test("a sleep that ends in time resolves true", async () => {
  const slept = sleep(50);
  await vi.advanceTimersByTimeAsync(50);
  expect(await slept).toBe(true);
});

test("an aborted sleep resolves false at once and leaves no timer", async () => {
  const controller = new AbortController();
  const slept = sleep(50_000, controller.signal);
  controller.abort();
  expect(await slept).toBe(false);
  expect(vi.getTimerCount()).toBe(0);
});

test("a sleep under an already aborted signal does not start", async () => {
  expect(await sleep(50, AbortSignal.abort())).toBe(false);
  expect(vi.getTimerCount()).toBe(0);
});

test("a finished sleep removes its listener from the signal", async () => {
  const controller = new AbortController();
  const remove = vi.spyOn(controller.signal, "removeEventListener");
  const slept = sleep(50, controller.signal);
  await vi.advanceTimersByTimeAsync(50);
  await slept;
  expect(remove).toHaveBeenCalledTimes(1);
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
