import { expect, test } from "vitest";
import { EndedProcesses } from "./ownership.ts";

test("an ended process gets a grace period, which restarts if it appeared alive in between", () => {
  const deaths = new EndedProcesses(30_000);
  expect(deaths.listOverdue(["a"], 0)).toEqual([]);
  expect(deaths.listOverdue(["a"], 1_999)).toEqual([]);
  expect(deaths.listOverdue([], 2_000)).toEqual([]);
  expect(deaths.listOverdue(["a"], 2_001)).toEqual([]);
  expect(deaths.listOverdue(["a"], 4_000)).toEqual([]);
});

test("each process is overdue after its own grace period, until it is no longer listed", () => {
  const deaths = new EndedProcesses(30_000);
  deaths.listOverdue(["a"], 0);
  expect(deaths.listOverdue(["a", "b"], 2_000)).toEqual(["a"]);
  expect(deaths.listOverdue(["a", "b"], 4_000)).toEqual(["a", "b"]);
  expect(deaths.listOverdue(["b"], 4_001)).toEqual(["b"]);
});

test("the grace period is at most half of the lease", () => {
  const deaths = new EndedProcesses(1_000);
  deaths.listOverdue(["a"], 0);
  expect([deaths.listOverdue(["a"], 499), deaths.listOverdue(["a"], 500)]).toEqual([[], ["a"]]);
});
