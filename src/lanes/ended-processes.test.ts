import { expect, test } from "vitest";
import { EndedProcesses } from "./ownership.ts";

test("what has just ended is given time, and what is no longer said to have ended begins anew", () => {
  const deaths = new EndedProcesses(30_000);
  expect(deaths.listOverdue(["a"], 0)).toEqual([]);
  expect(deaths.listOverdue(["a"], 1_999)).toEqual([]);
  expect(deaths.listOverdue([], 2_000)).toEqual([]);
  expect(deaths.listOverdue(["a"], 2_001)).toEqual([]);
  expect(deaths.listOverdue(["a"], 4_000)).toEqual([]);
});

test("each is overdue by its own time, until it is no longer told of", () => {
  const deaths = new EndedProcesses(30_000);
  deaths.listOverdue(["a"], 0);
  expect(deaths.listOverdue(["a", "b"], 2_000)).toEqual(["a"]);
  expect(deaths.listOverdue(["a", "b"], 4_000)).toEqual(["a", "b"]);
  expect(deaths.listOverdue(["b"], 4_001)).toEqual(["b"]);
});

test("with a short lease it is half of that", () => {
  const deaths = new EndedProcesses(1_000);
  deaths.listOverdue(["a"], 0);
  expect([deaths.listOverdue(["a"], 499), deaths.listOverdue(["a"], 500)]).toEqual([[], ["a"]]);
});
