import fc from "fast-check";
import { expect, test } from "vitest";
import { OffsetTracker } from "./assigned-partition.ts";

test("I-10c: a done record behind an open one is not committed", () => {
  const tracker = new OffsetTracker(10);
  for (const offset of [10, 11, 12]) tracker.add(offset);
  tracker.complete(12);
  tracker.complete(11);
  expect(tracker.safe).toBe(10);
  tracker.complete(10);
  expect(tracker.safe).toBe(13);
});

test("offsets that are missing in the log are skipped", () => {
  const tracker = new OffsetTracker(0);
  tracker.add(3);
  tracker.add(7);
  tracker.skipTo(9);
  expect(tracker.safe).toBe(3);
  tracker.complete(3);
  expect(tracker.safe).toBe(7);
  tracker.complete(7);
  expect(tracker.safe).toBe(9);
});

test("an empty range of the log advances the safe offset", () => {
  const tracker = new OffsetTracker(5);
  tracker.skipTo(8);
  expect(tracker.safe).toBe(8);
  tracker.skipTo(6);
  expect(tracker.safe).toBe(8);
});

test("completing a record twice changes nothing", () => {
  const tracker = new OffsetTracker(0);
  tracker.add(0);
  tracker.complete(0);
  tracker.complete(0);
  tracker.add(1);
  expect([tracker.safe, tracker.length]).toEqual([1, 1]);
});

test("the committed offset never decreases", () => {
  const tracker = new OffsetTracker(4);
  tracker.noteCommit(9);
  tracker.noteCommit(7);
  expect(tracker.committed).toBe(9);
});

test("adding an offset that is too low throws", () => {
  const tracker = new OffsetTracker(0);
  tracker.add(5);
  expect(() => tracker.add(5)).toThrow("but 6 was expected");
});

test("I-10c: in any order of completion, the safe offset is the first open record, and nothing else is kept", () => {
  const gapsAndOrder = fc.tuple(
    fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 60 }),
    fc.infiniteStream(fc.nat()),
  );
  fc.assert(
    fc.property(gapsAndOrder, ([gaps, chance]) => {
      let last = 0;
      const offsets = gaps.map((gap) => (last += gap));
      const tracker = new OffsetTracker(1);
      for (const offset of offsets) tracker.add(offset);
      const open = new Set(offsets);
      while (open.size > 0) {
        expect(tracker.safe).toBe(Math.min(...open));
        const left = [...open];
        const completed = left[(chance.next().value as number) % left.length] ?? 0;
        open.delete(completed);
        tracker.complete(completed);
      }
      expect(tracker.safe).toBe(last + 1);
      expect(tracker.length).toBe(0);
    }),
  );
});

test("completed offsets are dropped", () => {
  const tracker = new OffsetTracker(0);
  for (let offset = 0; offset < 10_000; offset++) {
    tracker.add(offset);
    tracker.complete(offset);
  }
  expect([tracker.safe, tracker.length]).toEqual([10_000, 0]);
});
