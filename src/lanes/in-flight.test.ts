import { expect, test } from "vitest";
import { aRow, theRow } from "../../test/support/lanes.ts";
import { InFlight } from "./custody.ts";

test("rule 7: a row that settles during a read is known to that read and forgotten by the next", () => {
  const inFlight = new InFlight();
  inFlight.add(theRow(1), 0);
  inFlight.beginRead([7]);
  expect(inFlight.remove(theRow(1))).toBe(true);
  expect([inFlight.size, inFlight.knows(theRow(1))]).toEqual([0, true]);
  inFlight.beginRead([7]);
  expect(inFlight.knows(theRow(1))).toBe(false);
});

test("a read of other lanes keeps the ghosts of this lane", () => {
  const inFlight = new InFlight();
  inFlight.add(theRow(1), 0);
  inFlight.beginRead([7]);
  inFlight.beginRead([8]);
  inFlight.remove(theRow(1));
  inFlight.beginRead([8]);
  expect(inFlight.knows(theRow(1))).toBe(true);
});

test("a row that was read again after its lane was lost is a different row", () => {
  const inFlight = new InFlight();
  const [lost, again] = [aRow(1), aRow(1)];
  inFlight.add(lost, 0);
  expect([inFlight.holds(lost), inFlight.holds(undefined)]).toEqual([true, false]);
  inFlight.forget(lost.lane);
  inFlight.add(again, 0);
  expect([inFlight.holds(lost), inFlight.holds(again)]).toEqual([false, true]);
});

test("a row is removed once", () => {
  const inFlight = new InFlight();
  inFlight.add(theRow(1), 0);
  expect([inFlight.remove(theRow(1)), inFlight.remove(theRow(1))]).toEqual([true, false]);
});

test("a stream is in flight until its last row is removed", () => {
  const inFlight = new InFlight();
  for (const seq of [1, 2]) inFlight.add(theRow(seq, { stream: "s" }), 0);
  inFlight.remove(theRow(1, { stream: "s" }));
  expect(inFlight.hasStream("s")).toBe(true);
  inFlight.remove(theRow(2, { stream: "s" }));
  expect(inFlight.hasStream("s")).toBe(false);
});

test("a lane is busy from its first row to its last, and idle otherwise", () => {
  const inFlight = new InFlight();
  inFlight.add(theRow(1), 100);
  inFlight.add(theRow(2), 150);
  inFlight.remove(theRow(1));
  expect([inFlight.busyMs(7, 180), inFlight.isIdle(7), inFlight.isIdle(8)]).toEqual([80, false, true]);
  inFlight.remove(theRow(2));
  expect([inFlight.busyMs(7, 200), inFlight.isIdle(7)]).toEqual([0, true]);
});

test("a lost lane drops its own rows and streams only", () => {
  const inFlight = new InFlight();
  inFlight.add(theRow(1, { lane: 1, stream: "s" }), 0);
  inFlight.add(theRow(2, { lane: 2, stream: "t" }), 0);
  inFlight.forget(1);
  expect([inFlight.hasStream("s"), inFlight.hasStream("t"), inFlight.size]).toEqual([false, true, 1]);
  expect(inFlight.rowsIn(2).map((row) => row.seq)).toEqual([2]);
});

test("removing a row from before its lane was lost keeps the newer copy", () => {
  const inFlight = new InFlight();
  const [before, since] = [theRow(1), theRow(1, { waitMs: 1 })];
  inFlight.add(before, 0);
  inFlight.forget(7);
  inFlight.add(since, 0);
  expect([inFlight.remove(before), inFlight.size, inFlight.holds(since)]).toEqual([false, 1, true]);
});

test("a row that got its message is known as the complete one from then on", () => {
  const inFlight = new InFlight();
  const [narrow, whole] = [theRow(1), theRow(1, { waitMs: 2 })];
  inFlight.add(narrow, 0);
  inFlight.replace(narrow, whole);
  expect([inFlight.holds(narrow), inFlight.remove(whole), inFlight.size]).toEqual([false, true, 0]);
});
