import { expect, test } from "vitest";
import { maxBatchSize, StatementBatchSize } from "./statement-batch-size.ts";

function sized(most: number) {
  let nowMs = 0;
  const size = new StatementBatchSize(most, { monotonicMs: () => nowMs, wallMs: () => nowMs });
  return { size, pass: (ms: number) => (nowMs += ms) };
}

test("a lot is half of what a consumer holds, so that one is written while another commits, and never large", () => {
  expect([1, 2, 3, 8, 500].map(maxBatchSize)).toEqual([2, 4, 6, 16, 16]);
});

test("where nothing may be shared, nothing is", () => {
  const { size } = sized(1);
  for (let n = 0; n < 9; n++) size.recordDuration(1, 1);
  expect(size.most).toBe(1);
});

test("one slow lot changes nothing, slow ones end the sharing for a while", () => {
  const { size, pass } = sized(4);
  size.recordDuration(4, 1);
  size.recordDuration(4, 17);
  expect(size.most).toBe(4);
  for (let n = 0; n < 6; n++) size.recordDuration(4, 17);
  expect(size.most).toBe(1);
  pass(1_001);
  expect(size.most).toBe(4);
});

test("the slower a lot was, the longer until the next", () => {
  const { size, pass } = sized(4);
  for (let n = 0; n < 50; n++) size.recordDuration(1, 200);
  for (let n = 0; n < 8; n++) size.recordDuration(4, 500);
  expect(size.most).toBe(1);
  pass(7_000);
  expect(size.most).toBe(1);
  pass(6_000);
  expect(size.most).toBe(4);
});

test("where one statement takes as long as a lot, on a busy server or a slow disk, lots go on", () => {
  const { size } = sized(4);
  for (let n = 0; n < 50; n++) size.recordDuration(1, 20);
  for (let n = 0; n < 50; n++) size.recordDuration(4, 25);
  expect(size.most).toBe(4);
  for (let n = 0; n < 12; n++) size.recordDuration(4, 80);
  expect(size.most).toBe(1);
});

test("rows that others want are left to statements that commit at once", () => {
  const { size, pass } = sized(4);
  size.recordContention();
  pass(59_000);
  expect(size.most).toBe(1);
  pass(1_001);
  expect(size.most).toBe(4);
});
