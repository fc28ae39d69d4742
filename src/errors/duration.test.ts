import { expect, test } from "vitest";
import { parseDuration } from "./duration.ts";

test.each([
  ["250ms", 250],
  ["30s", 30_000],
  ["5m", 300_000],
  ["1.5h", 5_400_000],
  ["14d", 1_209_600_000],
  ["0s", 0],
  [1_234, 1_234],
])("%s is %i milliseconds", (value, ms) => {
  expect(parseDuration(value)).toBe(ms);
});

test.each([
  "",
  "30",
  "s",
  "-1s",
  "1 s",
  "1w",
  "1e3s",
  "0x1s",
  "9".repeat(15) + "d",
  -1,
  Number.NaN,
  Infinity,
  null,
  {},
])("%o is not a duration", (value) => {
  expect(parseDuration(value)).toBeUndefined();
});
