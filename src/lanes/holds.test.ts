import { expect, test } from "vitest";
import { aRow } from "../../test/support/lanes.ts";
import { Holds } from "./custody.ts";

const names = (holds: readonly { stream: string | null; seq: number }[]) =>
  holds.map((held) => held.stream ?? held.seq);

test("a stream has one hold, and the last call sets its time", () => {
  const holds = new Holds();
  holds.hold(aRow(1, { stream: "s" }), 100);
  holds.hold(aRow(2, { stream: "s" }), 50);
  expect(holds.size).toBe(1);
  expect(holds.has(aRow(3, { stream: "s" }))).toBe(true);
  expect(names(holds.due(50, 10))).toEqual(["s"]);
});

test("a row without a key holds only itself", () => {
  const holds = new Holds();
  holds.hold(aRow(1), 0);
  expect([holds.has(aRow(1)), holds.has(aRow(2))]).toEqual([true, false]);
});

test("holds are due at their time, and at most `limit` are returned", () => {
  const holds = new Holds();
  for (const seq of [1, 2, 3]) holds.hold(aRow(seq), seq * 10);
  expect(holds.due(5, 10)).toEqual([]);
  expect(names(holds.due(20, 10))).toEqual([1, 2]);
  expect(names(holds.due(99, 2))).toHaveLength(2);
  expect(holds.nextMs()).toBe(10);
});

test("due holds of a lane that may not be worked on do not count towards the limit and are checked again soon", () => {
  const holds = new Holds();
  for (const seq of [1, 2, 3]) holds.hold(aRow(seq, { lane: 1 }), 0);
  holds.hold(aRow(4, { lane: 2 }), 0);
  const isOpen = (lane: number) => lane === 2;
  expect(names(holds.due(10, 2, isOpen))).toEqual([4]);
  holds.release(aRow(4, { lane: 2 }));
  expect(holds.due(10, 2, isOpen)).toEqual([]);
  expect(holds.nextMs()).toBeGreaterThan(10);
  expect(names(holds.due(holds.nextMs(), 2))).toHaveLength(2);
});

test("the next time is never too late, even after a hold was shortened in place", () => {
  const holds = new Holds();
  holds.hold(aRow(1, { stream: "s" }), 500);
  const [held] = holds.due(500, 1);
  if (held !== undefined) held.untilMs = 900;
  holds.due(500, 1);
  if (held !== undefined) held.untilMs = 20;
  if (held !== undefined) holds.updateEarliest(held);
  expect(holds.nextMs()).toBe(20);
});

test("a released hold, or one of a forgotten lane, is gone", () => {
  const holds = new Holds();
  holds.hold(aRow(1, { stream: "s", lane: 1 }), 0);
  holds.hold(aRow(2, { lane: 1 }), 0);
  holds.hold(aRow(3, { stream: "t", lane: 2 }), 0);
  holds.release(aRow(1, { stream: "s", lane: 1 }));
  expect(names(holds.due(0, 9))).toEqual([2, "t"]);
  holds.forget(1);
  expect(names(holds.due(0, 9))).toEqual(["t"]);
});

test("streams and single rows are listed by lane", () => {
  const holds = new Holds();
  holds.hold(aRow(1, { stream: "s", lane: 1 }), 0);
  holds.hold(aRow(2, { lane: 1 }), 0);
  holds.hold(aRow(3, { stream: "t", lane: 2 }), 0);
  expect([holds.streamsIn(new Set([1])), holds.rowsIn(new Set([1, 2]))]).toEqual([["s"], [2]]);
});
