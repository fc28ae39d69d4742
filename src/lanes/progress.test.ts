import { expect, test } from "vitest";
import { measureProgress } from "./reader.ts";
import type { LaneRow } from "./lane-row.ts";

const rowsOf = (...seen: readonly [lane: number, seq: number][]) =>
  seen.map(([lane, seq]) => ({ row: { lane, seq } as LaneRow }));

test("a lane that returned fewer rows than its limit was read to its end", () => {
  expect(measureProgress([7, 3], rowsOf([7, 11], [7, 12]), { perLane: 5, limit: 10 })).toEqual([
    { lane: 7, whole: true, last: 12 },
    { lane: 3, whole: true, last: 0 },
  ]);
});

test("a lane that returned as many rows as its limit may have more", () => {
  expect(measureProgress([7, 3], rowsOf([7, 11], [7, 12], [3, 4]), { perLane: 2, limit: 10 })).toEqual([
    { lane: 7, whole: false, last: 12 },
    { lane: 3, whole: true, last: 4 },
  ]);
});

test("a read that reached its limit knows nothing of the lanes after its last row", () => {
  expect(measureProgress([7, 3, 9], rowsOf([7, 11], [3, 4], [3, 5]), { perLane: 9, limit: 3 })).toEqual([
    { lane: 7, whole: true, last: 11 },
    { lane: 3, whole: false, last: 5 },
  ]);
});
