import { expect, test } from "vitest";
import { quietAfter } from "./wake-up.ts";

function settled(hintsPerMs: number, fromMs = 2): number {
  let quietMs = fromMs;
  for (let turn = 0; turn < 10; turn++) quietMs = quietAfter(quietMs, Math.floor(hintsPerMs * quietMs));
  return quietMs;
}

test("rare hints are sent after the shortest pause", () => {
  expect(settled(0.2)).toBe(2);
});

test("frequent hints are merged for longer, at most ten milliseconds", () => {
  expect([quietAfter(2, 3), quietAfter(4, 6), settled(1), settled(50)]).toEqual([4, 8, 10, 10]);
});

test("the pause is short again when hints become rare", () => {
  expect([settled(0.2, 10), quietAfter(10, 0)]).toEqual([2, 5]);
});
