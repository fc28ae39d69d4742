import { expect, test } from "vitest";
import { decideAdmission } from "./admission.ts";

const depths = new Map([
  ["full", 100],
  ["roomy", 99],
]);
const limit = { maxPending: 100, policy: "refuse" } as const;

test("A16: below the limit everything is admitted, including unknown topics", () => {
  expect(decideAdmission(["roomy", "new"], depths, limit)).toEqual({ kind: "admit" });
});

test("A16: at the limit the verdict names topic, depth and limit", () => {
  expect(decideAdmission(["roomy", "full"], depths, limit)).toEqual({
    kind: "refuse",
    overflow: { topic: "full", depth: 100, limit: 100 },
  });
});

test("A16: inside a transaction the policy wait refuses too", () => {
  expect(decideAdmission(["full"], depths, { ...limit, policy: "wait" })).toMatchObject({ kind: "refuse" });
});

test("A16: the policy drop names the full topics only", () => {
  const verdict = decideAdmission(["full", "roomy"], depths, { ...limit, policy: "drop" });
  expect(verdict).toEqual({
    kind: "drop",
    full: new Map([["full", { topic: "full", depth: 100, limit: 100 }]]),
  });
});
