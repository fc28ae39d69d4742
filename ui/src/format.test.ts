import { expect, test } from "vitest";
import {
  countOf,
  formatBytes,
  formatCount,
  formatMs,
  formatNumber,
  formatSeconds,
  formatTime,
  shortId,
} from "./format.ts";

test.each([
  [0, "0 s"],
  [59.4, "59 s"],
  [65, "1 min 5 s"],
  [600, "10 min"],
  [7500, "2 h 5 min"],
  [90_000, "1 d 1 h"],
])("%s seconds are shown as %s", (seconds, text) => {
  expect(formatSeconds(seconds)).toBe(text);
});

test("a count that stopped at its limit says so", () => {
  expect(formatCount({ count: 100_000, exact: false })).toBe("100,000 or more");
  expect(countOf({ count: 1, exact: true }, "dead letter")).toBe("1 dead letter");
  expect(countOf({ count: 1, exact: false }, "dead letter")).toBe("1 or more dead letters");
});

test("small rates keep a digit, large numbers are grouped", () => {
  expect([
    formatNumber(0.44),
    formatNumber(1234567),
    formatMs(950),
    formatMs(1400),
    formatBytes(2048),
  ]).toEqual(["0.4", "1,234,567", "950 ms", "1.4 s", "2 kB"]);
});

test("a time of another day has its day, one of another year its year", () => {
  const now = Date.parse("2026-11-19T10:00:00Z");
  expect(formatTime("2026-11-19T09:05:07.123Z", "utc", now)).toBe("09:05:07 UTC");
  expect(formatTime("2026-11-18T09:05:07Z", "utc", now)).toBe("18 Nov, 09:05:07 UTC");
  expect(formatTime("2025-11-18T09:05:07Z", "utc", now)).toBe("18 Nov 2025, 09:05:07 UTC");
  expect(formatTime("not a time", "utc", now)).toBe("not a time");
});

test("a long id is cut in the middle, a short one is not", () => {
  expect(shortId("01994c2e-7b1a-7c3d-9e4f-000000000500")).toBe("01994c2e…0500");
  expect(shortId("771")).toBe("771");
});
