import { expect, test } from "vitest";
import { findUnread } from "./group-lag.ts";

const at = (...offsets: number[]) => offsets.map((offset, partition) => ({ partition, offset }));

test("unread records are those between the committed offset and the end", () => {
  expect(findUnread(at(5, 9), at(0, 0), at(12, 9))).toEqual([
    { partition: 0, from: 5, count: 7 },
    { partition: 1, from: 9, count: 0 },
  ]);
});

test("records that the retention has deleted are not counted", () => {
  expect(findUnread(at(5), at(10), at(12))).toEqual([{ partition: 0, from: 10, count: 2 }]);
});

test("a partition that was added later is read from its beginning", () => {
  expect(findUnread(at(5), at(0, 3), at(5, 9))).toEqual([
    { partition: 0, from: 5, count: 0 },
    { partition: 1, from: 3, count: 6 },
  ]);
});

test("a group that has committed nothing has no lag that could be known", () => {
  expect(findUnread([], at(0), at(12))).toBeUndefined();
});
