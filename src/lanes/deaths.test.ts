import { expect, test } from "vitest";
import { Deaths } from "./deaths.ts";

test("what has just ended is given time, and what is no longer said to have ended begins anew", () => {
  const deaths = new Deaths(30_000);
  expect(deaths.overdue(["a"], 0)).toEqual([]);
  expect(deaths.overdue(["a"], 1_999)).toEqual([]);
  expect(deaths.overdue([], 2_000)).toEqual([]);
  expect(deaths.overdue(["a"], 2_001)).toEqual([]);
  expect(deaths.overdue(["a"], 4_000)).toEqual([]);
});

test("each is overdue by its own time, until it is no longer told of", () => {
  const deaths = new Deaths(30_000);
  deaths.overdue(["a"], 0);
  expect(deaths.overdue(["a", "b"], 2_000)).toEqual(["a"]);
  expect(deaths.overdue(["a", "b"], 4_000)).toEqual(["a", "b"]);
  expect(deaths.overdue(["b"], 4_001)).toEqual(["b"]);
});

test("with a short lease it is half of that", () => {
  const deaths = new Deaths(1_000);
  deaths.overdue(["a"], 0);
  expect([deaths.overdue(["a"], 499), deaths.overdue(["a"], 500)]).toEqual([[], ["a"]]);
});
