import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { sleep, withJitter } from "./sleep.ts";

beforeEach(() => {
  vi.useFakeTimers();
});
afterEach(() => {
  vi.useRealTimers();
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

test("jitter stays within its share on both sides", () => {
  expect(withJitter(100, 0.2, () => 0)).toBeCloseTo(80);
  expect(withJitter(100, 0.2, () => 0.5)).toBeCloseTo(100);
  expect(withJitter(100, 0.2, () => 1)).toBeCloseTo(120);
});
