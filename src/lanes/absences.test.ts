import { expect, test } from "vitest";
import { Absences } from "./absences.ts";

test("a process that is away for a moment is waited for, and one that comes back is as if it had never been away", () => {
  const absences = new Absences(30_000);
  expect(absences.overdue(["a"], 0)).toEqual([]);
  expect(absences.overdue(["a"], 1_999)).toEqual([]);
  expect(absences.overdue([], 2_000)).toEqual([]);
  expect(absences.overdue(["a"], 2_001)).toEqual([]);
  expect(absences.overdue(["a"], 4_000)).toEqual([]);
});

test("a process that stays away is overdue, each by its own time, until it is no longer told of", () => {
  const absences = new Absences(30_000);
  absences.overdue(["a"], 0);
  expect(absences.overdue(["a", "b"], 2_000)).toEqual(["a"]);
  expect(absences.overdue(["a", "b"], 4_000)).toEqual(["a", "b"]);
  expect(absences.overdue(["b"], 4_001)).toEqual(["b"]);
});

test("with a short lease it is waited for half of that", () => {
  const absences = new Absences(1_000);
  absences.overdue(["a"], 0);
  expect([absences.overdue(["a"], 499), absences.overdue(["a"], 500)]).toEqual([[], ["a"]]);
});
