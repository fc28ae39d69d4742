import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { DatabaseClock } from "./engine.ts";

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

test("the clock continues from its last reading", () => {
  const clock = new DatabaseClock();
  expect(clock.nowMs).toBeUndefined();
  clock.update(1_000_000);
  vi.advanceTimersByTime(250);
  expect(clock.nowMs).toBe(1_000_250);
});

test("a reading that took longer to come does not turn the clock back", () => {
  const clock = new DatabaseClock();
  clock.update(1_000_000);
  vi.advanceTimersByTime(500);
  clock.update(1_000_100); // read 400 ms ago
  expect(clock.nowMs).toBe(1_000_500);
  clock.update(1_000_700);
  expect(clock.nowMs).toBe(1_000_700);
});

test("after a while the clock has to be read again, and may then be another one", () => {
  const clock = new DatabaseClock();
  clock.update(1_000_000);
  vi.advanceTimersByTime(10_001);
  expect(clock.nowMs).toBeUndefined();
  clock.update(900_000);
  expect(clock.nowMs).toBe(900_000);
});
