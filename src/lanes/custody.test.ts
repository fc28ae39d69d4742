import { expect, test } from "vitest";
import { theRow } from "../../test/support/lanes.ts";
import { Custody } from "./custody.ts";
import type { LaneRow } from "./lane-row.ts";

function setup() {
  const clock = { nowMs: 1_000 };
  const custody = new Custody(() => clock.nowMs);
  const goOn = (rows: readonly LaneRow[], how: { resting?: string[]; moved?: boolean } = {}): number[] =>
    custody
      .resumeHolds(custody.holds.due(clock.nowMs, 10), rows, {
        resting: how.resting ?? [],
        marksMoved: () => how.moved ?? false,
      })
      .map((row) => row.seq);
  return { clock, custody, goOn };
}

const s = (seq: number, change: Partial<LaneRow> = {}): LaneRow => theRow(seq, { stream: "s", ...change });

test("a row is returned once, however often it is read", () => {
  const { custody } = setup();
  expect(custody.take(theRow(1), false)).toBe(true);
  expect(custody.take(theRow(1), false)).toBe(false);
});

test("rule 7: a row that settled during a read is not returned by that read", () => {
  const { custody } = setup();
  custody.take(theRow(1), false);
  custody.inFlight.beginRead([7]);
  custody.settle(theRow(1));
  expect(custody.take(theRow(1), false)).toBe(false);
});

test("rule 4: a row that must wait holds back its stream and no other", () => {
  const { custody } = setup();
  expect(custody.take(s(1, { waitMs: 300 }), false)).toBe(false);
  expect(custody.take(s(2), false)).toBe(false);
  expect(custody.take(theRow(3, { stream: "t" }), false)).toBe(true);
  expect(custody.holds.nextMs()).toBe(1_300);
});

test("a held stream resumes at its first row, in order, up to the first row that must wait", () => {
  const { custody, clock, goOn } = setup();
  custody.take(s(1, { waitMs: 300 }), false);
  clock.nowMs = 1_300;
  expect(goOn([s(1), s(2), s(3, { waitMs: 50 }), s(4)])).toEqual([1, 2]);
});

test("a held stream with rows in flight returns nothing more and is read again when they settle", () => {
  const { custody, goOn } = setup();
  custody.take(s(1), false);
  custody.watch(custody.inFlightIn([7]));
  expect(custody.holds.nextMs()).toBe(Infinity);
  custody.settle(s(1));
  expect(custody.holds.nextMs()).toBe(1_000);
  expect(goOn([s(2), s(3)])).toEqual([2, 3]);
});

test("rule 6: a stream is read again if its row settled while a read left out the later ones", () => {
  const { custody, goOn } = setup();
  custody.take(s(1), false);
  const busy = custody.inFlightIn([7]);
  custody.settle(s(1));
  custody.watch(busy);
  expect(goOn([s(2)])).toEqual([2]);
});

test("a row put back during a read keeps its delay", () => {
  const { custody } = setup();
  custody.take(s(1), false);
  const busy = custody.inFlightIn([7]);
  custody.putBack(s(1), 500);
  custody.watch(busy);
  expect(custody.holds.nextMs()).toBe(1_500);
});

test("a held stream without rows is released", () => {
  const { custody, goOn } = setup();
  custody.putBack(s(1), 0);
  custody.take(s(1), true);
  expect(goOn([])).toEqual([]);
  expect(custody.holds.size).toBe(0);
});

test("a held stream without rows is kept if a mark moved meanwhile, because it may have passed a later row", () => {
  const { custody, goOn } = setup();
  custody.take(s(1), true);
  expect(goOn([], { moved: true })).toEqual([]);
  expect(custody.holds.size).toBe(1);
  expect(goOn([s(2)])).toEqual([2]);
});

test("a row that was put back waits, and later rows of its stream wait behind it", () => {
  const { custody, clock } = setup();
  custody.take(s(1), false);
  custody.putBack(s(1), 250);
  expect(custody.inFlight.size).toBe(0);
  clock.nowMs = 1_249;
  expect(custody.holds.due(clock.nowMs, 9)).toEqual([]);
  clock.nowMs = 1_250;
  expect(custody.holds.due(clock.nowMs, 9)).toHaveLength(1);
});

test("a row leased by its writer is checked again before the lease ends", () => {
  const { custody } = setup();
  custody.take(s(1, { waitMs: 4_000, leased: true }), false);
  expect(custody.holds.nextMs()).toBe(1_050);
});

test("a row that is never due is checked regularly, because an operator may replay it", () => {
  const { custody } = setup();
  custody.take(s(1, { waitMs: 86_400_000 }), false);
  expect(custody.holds.nextMs()).toBeLessThanOrEqual(6_000);
});

test("a paused destination keeps its held streams waiting", () => {
  const { custody, goOn } = setup();
  custody.take(s(1), true);
  expect(goOn([s(1)], { resting: [s(1).topic] })).toEqual([]);
  expect([custody.holds.due(1_000, 9), custody.holds.size]).toEqual([[], 1]);
});

test("held rows without a key resume on their own", () => {
  const { custody, clock, goOn } = setup();
  custody.take(theRow(1, { waitMs: 10 }), false);
  clock.nowMs = 1_010;
  expect(goOn([theRow(1)])).toEqual([1]);
  expect(custody.holds.size).toBe(0);
});

test("a read leaves out held streams, busy streams and held rows of its own lanes only", () => {
  const { custody } = setup();
  custody.take(s(1), false);
  custody.take(theRow(2), false);
  custody.take(theRow(3, { waitMs: 10 }), false);
  custody.take(theRow(4, { stream: "t", waitMs: 10 }), false);
  custody.take(theRow(5, { lane: 8, stream: "u" }), false);
  expect(custody.excludedParams([7])).toEqual(['{"t","s"}', "{1,2,3}"]);
});

test("a forgotten lane leaves no state behind", () => {
  const { custody } = setup();
  custody.take(s(1), false);
  custody.take(theRow(2, { stream: "t", waitMs: 10 }), false);
  custody.forget(7);
  expect([custody.inFlight.size, custody.holds.size]).toEqual([0, 0]);
  expect(custody.settle(s(1))).toBe(false);
});
