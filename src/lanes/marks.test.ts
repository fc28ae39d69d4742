import { expect, test } from "vitest";
import { Marks } from "./marks.ts";

/** A finished read of lane 1 that saw everything up to `position`, when all below `horizon` had ended. */
function read(marks: Marks, position: number, horizon: bigint): void {
  marks.finishRead();
  marks.recordRead(1, position, horizon);
}

test("a mark stays where it was until a later transaction number is known to have ended", () => {
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

test("a transaction number asked for before the read had finished proves nothing about it", () => {
  const marks = new Marks();
  const before = marks.reads;
  read(marks, 100, 10n);
  marks.confirm(50n, before);
  read(marks, 100, 99n);
  expect(marks.markFor(1)).toBe(0);
});

test("a proof moves the mark to the read it was drawn after, not to the one that confirms it", () => {
  const marks = new Marks();
  read(marks, 100, 10n);
  marks.confirm(50n, marks.reads);
  read(marks, 250, 60n);
  expect(marks.markFor(1)).toBe(100);
});

test("a confirming read that was cut off moves the mark only as far as it went", () => {
  const marks = new Marks();
  read(marks, 100, 10n);
  marks.confirm(50n, marks.reads);
  read(marks, 30, 60n);
  expect(marks.markFor(1)).toBe(30);
  read(marks, 100, 60n);
  expect(marks.markFor(1)).toBe(100);
});

test("a mark never goes back", () => {
  const marks = new Marks();
  read(marks, 100, 10n);
  marks.confirm(50n, marks.reads);
  read(marks, 100, 60n);
  read(marks, 20, 70n);
  marks.confirm(80n, marks.reads);
  read(marks, 20, 90n);
  expect(marks.markFor(1)).toBe(100);
});

test("lanes have marks of their own, and a lane that was lost starts from the beginning", () => {
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

test("all marks are forgotten at once when nothing about the server is certain any more", () => {
  const marks = new Marks();
  read(marks, 100, 10n);
  marks.confirm(50n, marks.reads);
  read(marks, 200, 60n);
  marks.forgetAll();
  expect(marks.markFor(1)).toBe(0);
  read(marks, 100, 999n);
  expect(marks.markFor(1)).toBe(0);
});
