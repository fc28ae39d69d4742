import { expect, test } from "vitest";
import { aRow, theRow } from "../../test/support/lane-rows.ts";
import { InFlight } from "./custody.ts";

test("rule 7: what settles while a read runs is still known to that read, and forgotten by the next", () => {
  const inFlight = new InFlight();
  inFlight.add(theRow(1), 0);
  inFlight.beginRead([7]);
  expect(inFlight.remove(theRow(1))).toBe(true);
  expect([inFlight.size, inFlight.knows(theRow(1))]).toEqual([0, true]);
  inFlight.beginRead([7]);
  expect(inFlight.knows(theRow(1))).toBe(false);
});

test("a read of other lanes forgets nothing that a read of this one must know", () => {
  const inFlight = new InFlight();
  inFlight.add(theRow(1), 0);
  inFlight.beginRead([7]);
  inFlight.beginRead([8]);
  inFlight.remove(theRow(1));
  inFlight.beginRead([8]);
  expect(inFlight.knows(theRow(1))).toBe(true);
});

test("a row that was lost with its lane and read again is another one", () => {
  const inFlight = new InFlight();
  const [lost, again] = [aRow(1), aRow(1)];
  inFlight.add(lost, 0);
  expect([inFlight.holds(lost), inFlight.holds(undefined)]).toEqual([true, false]);
  inFlight.forget(lost.lane);
  inFlight.add(again, 0);
  expect([inFlight.holds(lost), inFlight.holds(again)]).toEqual([false, true]);
});

test("a row is taken out once", () => {
  const inFlight = new InFlight();
  inFlight.add(theRow(1), 0);
  expect([inFlight.remove(theRow(1)), inFlight.remove(theRow(1))]).toEqual([true, false]);
});

test("a stream is in flight until the last of its rows has come back", () => {
  const inFlight = new InFlight();
  for (const seq of [1, 2]) inFlight.add(theRow(seq, { stream: "s" }), 0);
  inFlight.remove(theRow(1, { stream: "s" }));
  expect(inFlight.hasStream("s")).toBe(true);
  inFlight.remove(theRow(2, { stream: "s" }));
  expect(inFlight.hasStream("s")).toBe(false);
});

test("a lane is busy from its first row to its last, and idle in between", () => {
  const inFlight = new InFlight();
  inFlight.add(theRow(1), 100);
  inFlight.add(theRow(2), 150);
  inFlight.remove(theRow(1));
  expect([inFlight.busyMs(7, 180), inFlight.isIdle(7), inFlight.isIdle(8)]).toEqual([80, false, true]);
  inFlight.remove(theRow(2));
  expect([inFlight.busyMs(7, 200), inFlight.isIdle(7)]).toEqual([0, true]);
});

test("a lost lane takes its rows and their streams along, and no others", () => {
  const inFlight = new InFlight();
  inFlight.add(theRow(1, { lane: 1, stream: "s" }), 0);
  inFlight.add(theRow(2, { lane: 2, stream: "t" }), 0);
  inFlight.forget(1);
  expect([inFlight.hasStream("s"), inFlight.hasStream("t"), inFlight.size]).toEqual([false, true, 1]);
  expect(inFlight.rowsIn(2).map((row) => row.seq)).toEqual([2]);
});

test("what was handed out before its lane was lost does not take away what was read in its place since", () => {
  const inFlight = new InFlight();
  const [before, since] = [theRow(1), theRow(1, { waitMs: 1 })];
  inFlight.add(before, 0);
  inFlight.forget(7);
  inFlight.add(since, 0);
  expect([inFlight.remove(before), inFlight.size, inFlight.holds(since)]).toEqual([false, 1, true]);
});

test("a row that got its message is known as the whole one from then on", () => {
  const inFlight = new InFlight();
  const [narrow, whole] = [theRow(1), theRow(1, { waitMs: 2 })];
  inFlight.add(narrow, 0);
  inFlight.replace(narrow, whole);
  expect([inFlight.holds(narrow), inFlight.remove(whole), inFlight.size]).toEqual([false, true, 0]);
});
