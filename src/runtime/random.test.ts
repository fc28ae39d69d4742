import { expect, test } from "vitest";
import { random, randomBytes, randomToken } from "./random.ts";

test("random numbers lie in [0, 1)", () => {
  const numbers = Array.from({ length: 1000 }, random);
  expect(Math.min(...numbers)).toBeGreaterThanOrEqual(0);
  expect(Math.max(...numbers)).toBeLessThan(1);
});

test("a token is 128 bits of hexadecimal and never the same twice", () => {
  const tokens = Array.from({ length: 1000 }, randomToken);
  expect(new Set(tokens).size).toBe(1000);
  expect(tokens.filter((token) => !/^[0-9a-f]{32}$/.test(token))).toEqual([]);
});

test("as many random bytes come as were asked for", () => {
  expect(randomBytes(10)).toHaveLength(10);
  expect(randomBytes(0)).toHaveLength(0);
});
