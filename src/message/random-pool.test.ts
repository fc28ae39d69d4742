import { expect, test } from "vitest";
import { poolRandomBytes } from "./message-id.ts";

function setup() {
  const draws: number[] = [];
  let next = 0;
  const pooled = poolRandomBytes((size) => {
    draws.push(size);
    return Uint8Array.from({ length: size }, () => next++);
  }, 8);
  return { draws, pooled };
}

test("bytes are drawn in blocks and never reused", () => {
  const { draws, pooled } = setup();
  expect([...pooled(3)]).toEqual([0, 1, 2]);
  expect([...pooled(5)]).toEqual([3, 4, 5, 6, 7]);
  expect([...pooled(2)]).toEqual([8, 9]);
  expect(draws).toEqual([8, 8]);
});

test("a remainder that is too short is dropped, and large requests are drawn directly", () => {
  const { draws, pooled } = setup();
  pooled(6);
  expect([...pooled(4)]).toEqual([8, 9, 10, 11]);
  expect(pooled(20)).toHaveLength(20);
  expect(draws).toEqual([8, 8, 20]);
});
