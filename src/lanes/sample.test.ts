import { expect, test } from "vitest";
import { estimateRows } from "./sample.ts";

test("a count is exact if the table was read, else extrapolated, but never from a few rows", () => {
  expect(estimateRows({ seen: 7, percent: 100 })).toBe(7);
  expect(estimateRows({ seen: 400, percent: 2 })).toBe(20_000);
  expect(estimateRows({ seen: 9, percent: 2 })).toBe(9);
});
