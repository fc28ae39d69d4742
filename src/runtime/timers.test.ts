import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { after, every, yieldToEventLoop } from "./timers.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
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
