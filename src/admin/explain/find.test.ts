import { expect, test } from "vitest";
import { chooseMeanings } from "./explain.ts";
import { judgeSaga, type SagaFacts, sagaMoments } from "./judge-saga.ts";

const unknown = { isMessage: false, isSaga: false, isDeadLetter: false };

test("an id of a message or a saga has no other meaning", () => {
  expect(chooseMeanings("m1", { ...unknown, isMessage: true }, true)).toEqual(["message id"]);
  expect(chooseMeanings("s1", { ...unknown, isSaga: true }, true)).toEqual(["saga id"]);
  const both = { isMessage: true, isSaga: true, isDeadLetter: true };
  expect(chooseMeanings("x", both, true)).toEqual(["message id", "saga id"]);
});

test("a number may be a dead letter and a key; a trace id is searched if it looks like one", () => {
  const letter = { ...unknown, isDeadLetter: true };
  expect(chooseMeanings("123", letter, true)).toEqual(["dead letter", "key", "correlation id"]);
  const traceId = "4bf92f3577b34da6a3ce929d0e0e4736";
  expect(chooseMeanings(traceId, unknown, true)).toEqual(["key", "correlation id", "trace id"]);
});

test("a role that may not read keys does not search them", () => {
  expect(chooseMeanings("123", unknown, false)).toEqual(["correlation id"]);
});

const saga: SagaFacts = {
  id: "s1",
  type: "place-order",
  key: "o1",
  status: "running",
  currentStep: "reserve",
  waitsFor: "reserve",
  waitingSince: "2026-11-18T10:00:00.000Z",
  lastError: null,
  correlationId: "c1",
  dueAt: "2026-11-18T10:00:30.000Z",
  isDue: false,
  claimedBy: null,
  isClaimed: null,
  createdAt: "2026-11-18T09:59:59.000Z",
  completedAt: null,
  pendingInputs: 0,
};

test.each([
  ["waiting", {}, "It goes on with its input, or at 2026-11-18T10:00:30.000Z."],
  ["due", { isDue: true }, "A worker takes it next. If this stays so, run: sagabox saga stuck"],
  [
    "with input",
    { pendingInputs: 2 },
    "A worker takes it next with 2 pending inputs. If this stays so, run: sagabox saga stuck",
  ],
  ["claimed", { isDue: true, isClaimed: true, claimedBy: "w1" }, "Worker w1 runs it now."],
  ["failed", { status: "failed" }, "An operator has to decide. See: sagabox saga show s1"],
  ["ended", { status: "completed", completedAt: "2026-11-18T10:01:00.000Z" }, "Nothing: it has ended."],
])("a saga that is %s says what happens next", (_, change, next) => {
  expect(judgeSaga({ ...saga, ...change })).toMatchObject({ next });
});

test("the log of a saga becomes moments, without encrypted notes", () => {
  const line = { at: "t", event: "step_executed", step: "pay", from: null, to: null, note: null };
  expect(
    sagaMoments([
      line,
      { ...line, event: "state_changed", step: null, from: "running", to: "completed" },
      { ...line, event: "failed", note: "no money" },
      { ...line, note: '{"$sealed":"x"}' },
    ]).map(({ what }) => what),
  ).toEqual([
    "step pay step executed",
    "running → completed",
    "step pay failed: no money",
    "step pay step executed",
  ]);
});
