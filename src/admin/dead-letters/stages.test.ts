import { expect, test } from "vitest";
import { chunkSize, planStages, maxInFlight } from "./stages.ts";

test("the canary goes first, then an eighth, a quarter, half and the whole of the rate", () => {
  expect(planStages({ canary: 3, rate: 80 })).toEqual([
    { name: "canary", perSecond: 80, letters: 3 },
    { name: "ramp", perSecond: 10, letters: 10 },
    { name: "ramp", perSecond: 20, letters: 20 },
    { name: "ramp", perSecond: 40, letters: 40 },
    { name: "rest", perSecond: 80, letters: Infinity },
  ]);
});

test("a rate of one has no ramp, and no stage is slower than one a second", () => {
  expect(planStages({ canary: 1, rate: 1 }).map(({ name }) => name)).toEqual(["canary", "rest"]);
  expect(planStages({ canary: 1, rate: 4 }).every(({ perSecond }) => perSecond >= 1)).toBe(true);
});

test("a transaction takes a tenth of a second's letters, and two seconds' worth may be on their way", () => {
  const rest = { name: "rest", letters: Infinity } as const;
  expect([1, 100, 10_000].map((perSecond) => chunkSize({ ...rest, perSecond }))).toEqual([1, 10, 200]);
  expect([1, 100, 10_000].map((perSecond) => maxInFlight({ ...rest, perSecond }))).toEqual([10, 200, 2_000]);
});
