import { expect, test } from "vitest";
import { maxPosition, Progress, readPosition, toStreamOffset, writePosition } from "./stream-reader.ts";

test("an offset is done when all offsets before it are settled", () => {
  const progress = new Progress(4);
  expect(progress.add(4)).toBe(false);
  for (const offset of [5, 6, 7]) expect(progress.add(offset)).toBe(true);
  progress.settle(6);
  expect(progress.done).toBe(4);
  progress.settle(5);
  expect(progress.done).toBe(6);
  progress.settle(7);
  expect(progress.done).toBe(7);
});

test("the further of two positions wins, and the earlier of two start times", () => {
  const far = { offset: 9, sinceMs: 0 };
  expect(maxPosition({ offset: 3, sinceMs: 0 }, far)).toBe(far);
  const early = { offset: -1, sinceMs: 5 };
  expect(maxPosition(early, { offset: -1, sinceMs: 6 })).toBe(early);
});

test("a group continues after its offset, or begins where its subscription says", () => {
  expect(toStreamOffset({ offset: 0, sinceMs: 0 }, 0)).toBe(1);
  expect(toStreamOffset({ offset: -1, sinceMs: 0 }, 0)).toBe("first");
  expect(toStreamOffset({ offset: -1, sinceMs: 5_700 }, 5_700)).toBe("next");
  expect(toStreamOffset({ offset: -1, sinceMs: 5_700 }, 9_000)).toEqual({ "!": "timestamp", value: 5 });
});

test("a written position is read back, and other content is ignored", () => {
  const position = { offset: 12, sinceMs: 34 };
  expect(readPosition(writePosition(position))).toEqual(position);
  for (const text of ["probe", "", "1", "a b"]) expect(readPosition(Buffer.from(text))).toBeUndefined();
});
