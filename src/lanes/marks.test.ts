import { expect, test } from "vitest";
import { Marks } from "./custody.ts";

/** Finishes a read of lane 1 that saw everything up to `position`, with all transactions below `horizon` ended. */
function read(marks: Marks, position: number, horizon: bigint): void {
  marks.finishRead();
  marks.recordRead(1, position, horizon);
}

test("a mark stays until a later transaction id is known to have ended", () => {
  const marks = new Marks();
  read(marks, 100, 10n);
  expect(marks.markFor(1)).toBe(0);
  read(marks, 100, 999n);
  expect(marks.markFor(1)).toBe(0);
  marks.confirm(50n, marks.reads);
  read(marks, 100, 50n);
  expect(marks.markFor(1)).toBe(0);
  read(marks, 100, 51n);
  expect(marks.markFor(1)).toBe(100);
});

test("a transaction id taken before the read finished proves nothing about it", () => {
  const marks = new Marks();
  const before = marks.reads;
  read(marks, 100, 10n);
  marks.confirm(50n, before);
  read(marks, 100, 99n);
  expect(marks.markFor(1)).toBe(0);
});

test("a confirmed transaction id moves the mark to the read before it, not to the confirming read", () => {
  const marks = new Marks();
  read(marks, 100, 10n);
  marks.confirm(50n, marks.reads);
  read(marks, 250, 60n);
  expect(marks.markFor(1)).toBe(100);
});

test("a confirming read that reached its limit moves the mark to its last row only", () => {
  const marks = new Marks();
  read(marks, 100, 10n);
  marks.confirm(50n, marks.reads);
  read(marks, 30, 60n);
  expect(marks.markFor(1)).toBe(30);
  read(marks, 100, 60n);
  expect(marks.markFor(1)).toBe(100);
});

test("a mark never moves back", () => {
  const marks = new Marks();
  read(marks, 100, 10n);
  marks.confirm(50n, marks.reads);
  read(marks, 100, 60n);
  read(marks, 20, 70n);
  marks.confirm(80n, marks.reads);
  read(marks, 20, 90n);
  expect(marks.markFor(1)).toBe(100);
});

test("each lane has its own mark, and a lost lane starts from 0", () => {
  const marks = new Marks();
  marks.finishRead();
  marks.recordRead(1, 100, 10n);
  marks.recordRead(2, 70, 10n);
  marks.confirm(50n, marks.reads);
  marks.forget(1);
  marks.finishRead();
  marks.recordRead(1, 100, 60n);
  marks.recordRead(2, 70, 60n);
  expect([marks.markFor(1), marks.markFor(2), marks.markFor(3)]).toEqual([0, 70, 0]);
});

test("forgetAll resets all marks", () => {
  const marks = new Marks();
  read(marks, 100, 10n);
  marks.confirm(50n, marks.reads);
  read(marks, 200, 60n);
  marks.forgetAll();
  expect(marks.markFor(1)).toBe(0);
  read(marks, 100, 999n);
  expect(marks.markFor(1)).toBe(0);
});
