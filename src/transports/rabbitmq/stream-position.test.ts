import { expect, test } from "vitest";
import { furthest, Progress, readPosition, startOf, writePosition } from "./stream-position.ts";

test("an offset counts as done when everything before it is done", () => {
  const progress = new Progress(4);
  expect(progress.arrived(4)).toBe(false);
  for (const offset of [5, 6, 7]) expect(progress.arrived(offset)).toBe(true);
  progress.settled(6);
  expect(progress.done).toBe(4);
  progress.settled(5);
  expect(progress.done).toBe(6);
  progress.settled(7);
  expect(progress.done).toBe(7);
});

test("of two positions the further one counts, and of two beginnings the earlier", () => {
  const far = { offset: 9, sinceMs: 0 };
  expect(furthest({ offset: 3, sinceMs: 0 }, far)).toBe(far);
  const early = { offset: -1, sinceMs: 5 };
  expect(furthest(early, { offset: -1, sinceMs: 6 })).toBe(early);
});

test("a group goes on behind its offset, else where it was told to begin", () => {
  expect(startOf({ offset: 0, sinceMs: 0 }, 0)).toBe(1);
  expect(startOf({ offset: -1, sinceMs: 0 }, 0)).toBe("first");
  expect(startOf({ offset: -1, sinceMs: 5_700 }, 5_700)).toBe("next");
  expect(startOf({ offset: -1, sinceMs: 5_700 }, 9_000)).toEqual({ "!": "timestamp", value: 5 });
});

test("a position survives its way through the broker; anything else is none", () => {
  const position = { offset: 12, sinceMs: 34 };
  expect(readPosition(writePosition(position))).toEqual(position);
  for (const text of ["probe", "", "1", "a b"]) expect(readPosition(Buffer.from(text))).toBeUndefined();
});
