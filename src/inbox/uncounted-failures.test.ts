import { expect, test } from "vitest";
import { UncountedFailures } from "./process-delivery.ts";

test("failures of a delivery are counted until it is settled or an attempt is counted", () => {
  const failures = new UncountedFailures();
  const fails = (id: string): number => failures.count(id, "infrastructure");
  expect(["a", "a", "b", "a"].map(fails)).toEqual([0, 1, 0, 2]);
  failures.forget("a");
  failures.forget(undefined);
  expect(["a", "b"].map(fails)).toEqual([0, 1]);
  expect(failures.count("b", "retryable")).toBe(2);
  expect(fails("b")).toBe(0);
});

test("the number of tracked deliveries is limited: the one that failed longest ago is removed first", () => {
  const failures = new UncountedFailures(2);
  for (const id of ["a", "b", "a", "c"]) failures.count(id, "infrastructure");
  expect(["a", "c", "b"].map((id) => failures.count(id, "infrastructure"))).toEqual([2, 1, 0]);
});
