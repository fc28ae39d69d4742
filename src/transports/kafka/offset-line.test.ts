import fc from "fast-check";
import { expect, test } from "vitest";
import { OffsetLine } from "./offset-line.ts";

test("I-10c: what is done behind an open record is not committed before it", () => {
  const line = new OffsetLine(10);
  for (const offset of [10, 11, 12]) line.open(offset);
  line.done(12);
  line.done(11);
  expect(line.safe).toBe(10);
  line.done(10);
  expect(line.safe).toBe(13);
});

test("numbers that are missing in the log are passed over", () => {
  const line = new OffsetLine(0);
  line.open(3);
  line.open(7);
  line.skipTo(9);
  expect(line.safe).toBe(3);
  line.done(3);
  expect(line.safe).toBe(7);
  line.done(7);
  expect(line.safe).toBe(9);
});

test("an empty stretch moves the line on", () => {
  const line = new OffsetLine(5);
  line.skipTo(8);
  expect(line.safe).toBe(8);
  line.skipTo(6);
  expect(line.safe).toBe(8);
});

test("a record that was done already changes nothing", () => {
  const line = new OffsetLine(0);
  line.open(0);
  line.done(0);
  line.done(0);
  line.open(1);
  expect([line.safe, line.length]).toEqual([1, 1]);
});

test("a confirmed commit never goes back", () => {
  const line = new OffsetLine(4);
  line.didCommit(9);
  line.didCommit(7);
  expect(line.committed).toBe(9);
});

test("records are opened in order, or something is very wrong", () => {
  const line = new OffsetLine(0);
  line.open(5);
  expect(() => line.open(5)).toThrow("comes after 6");
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
      const line = new OffsetLine(1);
      for (const offset of offsets) line.open(offset);
      const open = new Set(offsets);
      while (open.size > 0) {
        expect(line.safe).toBe(Math.min(...open));
        const left = [...open];
        const ended = left[(chance.next().value as number) % left.length] ?? 0;
        open.delete(ended);
        line.done(ended);
      }
      expect(line.safe).toBe(last + 1);
      expect(line.length).toBe(0);
    }),
  );
});

test("a long line is kept short", () => {
  const line = new OffsetLine(0);
  for (let offset = 0; offset < 10_000; offset++) {
    line.open(offset);
    line.done(offset);
  }
  expect([line.safe, line.length]).toEqual([10_000, 0]);
});
