import { expect, test } from "vitest";
import { fairShare, LANES, preferredLanes } from "./statements.ts";
import { Unread } from "./reader.ts";
import { decodeHint, encodeHint } from "./wake-up.ts";

test.each([1, 2, 3, 5, 7, 255, 256, 300])(
  "%i members share all lanes, with a difference of at most one",
  (members) => {
    const shares = Array.from({ length: members }, (_, rank) => fairShare(members, rank));
    expect(shares.reduce((sum, share) => sum + share)).toBe(LANES);
    expect(Math.max(...shares) - Math.min(...shares)).toBeLessThanOrEqual(1);
  },
);

test("fairShare is 0 without members and for a rank out of range", () => {
  expect([fairShare(0, 0), fairShare(2, 2), fairShare(2, -1)]).toEqual([0, 0, 0]);
});

test.each([1, 2, 3, 5, 256])("%i members prefer their own lanes first and then all others", (members) => {
  const first: number[] = [];
  for (let rank = 0; rank < members; rank++) {
    const wish = preferredLanes(members, rank);
    first.push(...wish.slice(0, fairShare(members, rank)));
    expect(wish.toSorted((a, b) => a - b)).toEqual(Array.from({ length: LANES }, (_, lane) => lane));
  }
  expect(first).toEqual(Array.from({ length: LANES }, (_, lane) => lane));
});

test("neighbours prefer the lanes of a gone member from opposite ends, so they rarely compete", () => {
  const left = (lane: number): boolean => lane > 170;
  const [low = [], high = []] = [0, 1].map((rank) => preferredLanes(2, rank).filter(left));
  expect([low.slice(0, 3), high.slice(0, 3)]).toEqual([
    [255, 254, 253],
    [171, 172, 173],
  ]);
  expect(low.slice(0, 43).filter((lane) => high.slice(0, 42).includes(lane))).toEqual([]);
});

test("unread lanes are listed oldest first, and one not read to its end moves to the end", () => {
  const unread = new Unread();
  unread.add([3, 1, 2]);
  unread.add([1]);
  unread.putLast(3);
  expect(unread.list(() => true)).toEqual([1, 2, 3]);
  unread.delete(2);
  expect(unread.list((lane) => lane !== 1)).toEqual([3]);
});

test("a lane that is hinted during its read stays unread", () => {
  const unread = new Unread();
  unread.add([1, 2]);
  const began = unread.moment;
  unread.add([2]);
  for (const lane of [1, 2]) unread.done(lane, began);
  expect(unread.list(() => true)).toEqual([2]);
});

test("a hint names its lanes; too many lanes or an unknown payload mean all lanes", () => {
  expect(decodeHint(encodeHint([4, 250]))).toEqual({ lanes: [4, 250], changed: false });
  expect(decodeHint("!4,250")).toEqual({ lanes: [4, 250], changed: true });
  expect(encodeHint(Array.from({ length: 65 }, (_, n) => n))).toBe("*");
  for (const hint of ["*", "", "1,", "1;drop", "-1", "1,x"]) expect(decodeHint(hint).lanes).toBeUndefined();
});
