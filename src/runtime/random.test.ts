import { expect, test } from "vitest";
import { random, randomBytes, randomToken } from "./random.ts";

test("random numbers are in [0, 1)", () => {
  const numbers = Array.from({ length: 1000 }, random);
  expect(Math.min(...numbers)).toBeGreaterThanOrEqual(0);
  expect(Math.max(...numbers)).toBeLessThan(1);
});

test("a token is 128 bits of hexadecimal and never repeats", () => {
  const tokens = Array.from({ length: 1000 }, randomToken);
  expect(new Set(tokens).size).toBe(1000);
  expect(tokens.filter((token) => !/^[0-9a-f]{32}$/.test(token))).toEqual([]);
});

test("randomBytes returns the requested number of bytes", () => {
  expect(randomBytes(10)).toHaveLength(10);
  expect(randomBytes(0)).toHaveLength(0);
});
