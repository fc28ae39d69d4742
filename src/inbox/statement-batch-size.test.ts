import { expect, test } from "vitest";
import { maxBatchSize, StatementBatchSize } from "./statement-batch-size.ts";

function sized(max: number) {
  let nowMs = 0;
  const size = new StatementBatchSize(max, { monotonicMs: () => nowMs, wallMs: () => nowMs });
  return { size, pass: (ms: number) => (nowMs += ms) };
}

test("the largest batch is half of the default prefetch, and never above a limit", () => {
  expect([1, 2, 3, 8, 500].map(maxBatchSize)).toEqual([2, 4, 6, 16, 16]);
});

test("with a maximum of one, there is no batching", () => {
  const { size } = sized(1);
  for (let n = 0; n < 9; n++) size.recordDuration(1, 1);
  expect(size.max).toBe(1);
});

test("one slow batch changes nothing; several pause batching", () => {
  const { size, pass } = sized(4);
  size.recordDuration(4, 1);
  size.recordDuration(4, 17);
  expect(size.max).toBe(4);
  for (let n = 0; n < 6; n++) size.recordDuration(4, 17);
  expect(size.max).toBe(1);
  pass(1_001);
  expect(size.max).toBe(4);
});

test("the pause grows with the duration of the batches", () => {
  const { size, pass } = sized(4);
  for (let n = 0; n < 50; n++) size.recordDuration(1, 200);
  for (let n = 0; n < 8; n++) size.recordDuration(4, 500);
  expect(size.max).toBe(1);
  pass(7_000);
  expect(size.max).toBe(1);
  pass(6_000);
  expect(size.max).toBe(4);
});

test("batching continues while single statements are as slow as batches", () => {
  const { size } = sized(4);
  for (let n = 0; n < 50; n++) size.recordDuration(1, 20);
  for (let n = 0; n < 50; n++) size.recordDuration(4, 25);
  expect(size.max).toBe(4);
  for (let n = 0; n < 12; n++) size.recordDuration(4, 80);
  expect(size.max).toBe(1);
});

test("a lock conflict pauses batching", () => {
  const { size, pass } = sized(4);
  size.recordContention();
  pass(59_000);
  expect(size.max).toBe(1);
  pass(1_001);
  expect(size.max).toBe(4);
});
