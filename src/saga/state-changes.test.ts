import { expect, test } from "vitest";
import { changesText } from "./transition.ts";
import { newState, type SagaState } from "./state.ts";

const effort = { epoch: 1, attempt: 1, ids: ["c-1"], startedAtMs: 1, unit: 1 };

function changes(before: SagaState, after: SagaState, input: Parameters<typeof changesText>[2]): unknown {
  const text = changesText(before, after, input);
  return text === null ? null : JSON.parse(text);
}

test("only what changed is written, each value as before and after", () => {
  const before: SagaState = {
    ...newState(),
    units: 1,
    records: { pay: { ...effort, status: "in_progress" } },
  };
  const after: SagaState = {
    ...before,
    records: { pay: { ...effort, ids: ["c-1", "c-2"], attempt: 2, status: "in_progress" } },
  };
  expect(changes(before, after, { kind: "tick" })).toEqual({
    records: { pay: { ids: { 1: [null, "c-2"] }, attempt: [1, 2] } },
  });
});

test("a result that the input brought is not written a second time", () => {
  const before: SagaState = { ...newState(), records: { pay: { ...effort, status: "in_progress" } } };
  const result = { paymentId: "p-1", card: "0000" };
  const after: SagaState = {
    ...before,
    records: { pay: { ...effort, status: "completed", result: { ...result } } },
  };
  const text = changesText(before, after, {
    kind: "reply",
    requestId: "c-1",
    outcome: { kind: "done", result },
  });
  expect(text).not.toContain("0000");
  expect(JSON.parse(text ?? "")).toEqual({
    records: { pay: { status: ["in_progress", "completed"], result: [null, { $from: "input" }] } },
  });
});

test("a new record is written whole, and a list that became shorter as both lists", () => {
  const before: SagaState = { ...newState(), early: [{ id: "e", type: "t", data: 1 }] };
  const after: SagaState = { ...newState(), records: { pay: { ...effort, status: "in_progress" } } };
  expect(changes(before, after, { kind: "tick" })).toEqual({
    records: { pay: [null, { ...effort, status: "in_progress" }] },
    early: [[{ id: "e", type: "t", data: 1 }], []],
  });
});

test("a transition that changed nothing in the state has no changes", () => {
  expect(changesText(newState(), newState(), { kind: "tick" })).toBeNull();
});
