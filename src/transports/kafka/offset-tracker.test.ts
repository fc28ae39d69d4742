import fc from "fast-check";
import { expect, test } from "vitest";
import { OffsetTracker } from "./assigned-partition.ts";

test("I-10c: what is done behind an open record is not committed before it", () => {
  const line = new OffsetTracker(10);
  for (const offset of [10, 11, 12]) line.add(offset);
  line.complete(12);
  line.complete(11);
  expect(line.safe).toBe(10);
  line.complete(10);
  expect(line.safe).toBe(13);
});

test("numbers that are missing in the log are passed over", () => {
  const line = new OffsetTracker(0);
  line.add(3);
  line.add(7);
  line.skipTo(9);
  expect(line.safe).toBe(3);
  line.complete(3);
  expect(line.safe).toBe(7);
  line.complete(7);
  expect(line.safe).toBe(9);
});

test("an empty stretch moves the line on", () => {
  const line = new OffsetTracker(5);
  line.skipTo(8);
  expect(line.safe).toBe(8);
  line.skipTo(6);
  expect(line.safe).toBe(8);
});

test("a record that was done already changes nothing", () => {
  const line = new OffsetTracker(0);
  line.add(0);
  line.complete(0);
  line.complete(0);
  line.add(1);
  expect([line.safe, line.length]).toEqual([1, 1]);
});

test("a confirmed commit never goes back", () => {
  const line = new OffsetTracker(4);
  line.noteCommit(9);
  line.noteCommit(7);
  expect(line.committed).toBe(9);
});

test("records are opened in order, or something is very wrong", () => {
  const line = new OffsetTracker(0);
  line.add(5);
  expect(() => line.add(5)).toThrow("comes after 6");
});

test("I-10c: in whatever order records end, the line is the first that has not, and holds no more than it must", () => {
  const gapsAndOrder = fc.tuple(
    fc.array(fc.integer({ min: 1, max: 4 }), { minLength: 1, maxLength: 60 }),
    fc.infiniteStream(fc.nat()),
  );
  fc.assert(
    fc.property(gapsAndOrder, ([gaps, chance]) => {
      let last = 0;
      const offsets = gaps.map((gap) => (last += gap));
      const line = new OffsetTracker(1);
      for (const offset of offsets) line.add(offset);
      const open = new Set(offsets);
      while (open.size > 0) {
        expect(line.safe).toBe(Math.min(...open));
        const left = [...open];
        const ended = left[(chance.next().value as number) % left.length] ?? 0;
        open.delete(ended);
        line.complete(ended);
      }
      expect(line.safe).toBe(last + 1);
      expect(line.length).toBe(0);
    }),
  );
});

test("a long line is kept short", () => {
  const line = new OffsetTracker(0);
  for (let offset = 0; offset < 10_000; offset++) {
    line.add(offset);
    line.complete(offset);
  }
  expect([line.safe, line.length]).toEqual([10_000, 0]);
});
