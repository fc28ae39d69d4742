import { expect, test } from "vitest";
import { systemClock } from "./clock.ts";

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
