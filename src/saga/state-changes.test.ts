import { expect, test } from "vitest";
import { describeChanges } from "./transition.ts";
import { newState, type SagaState } from "./state.ts";

const effort = { epoch: 1, attempt: 1, ids: ["c-1"], startedAtMs: 1, unit: 1 };

function changes(before: SagaState, after: SagaState, input: Parameters<typeof describeChanges>[2]): unknown {
  const { oldState, newState } = describeChanges(before, after, input);
  return { old: parse(oldState), new: parse(newState) };
}

function parse(text: string | null): unknown {
  return text === null ? null : JSON.parse(text);
}

test("only what changed is written, with the values before and after", () => {
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
    old: { records: { pay: { ids: { 1: null }, attempt: 1 } } },
    new: { records: { pay: { ids: { 1: "c-2" }, attempt: 2 } } },
  });
});

test("a result that the input brought is not written a second time", () => {
  const before: SagaState = { ...newState(), records: { pay: { ...effort, status: "in_progress" } } };
  const result = { paymentId: "p-1", card: "0000" };
  const after: SagaState = {
    ...before,
    records: { pay: { ...effort, status: "completed", result: { ...result } } },
  };
  const written = describeChanges(before, after, {
    kind: "reply",
    requestId: "c-1",
    outcome: { kind: "done", result },
  });
  expect(written.newState).not.toContain("0000");
  expect(parse(written.oldState)).toEqual({ records: { pay: { status: "in_progress", result: null } } });
  expect(parse(written.newState)).toEqual({
    records: { pay: { status: "completed", result: { $from: "input" } } },
  });
});

test("a new record is written whole, and a list that became shorter as both lists", () => {
  const before: SagaState = { ...newState(), early: [{ id: "e", type: "t", data: 1 }] };
  const after: SagaState = { ...newState(), records: { pay: { ...effort, status: "in_progress" } } };
  expect(changes(before, after, { kind: "tick" })).toEqual({
    old: { records: { pay: null }, early: [{ id: "e", type: "t", data: 1 }] },
    new: { records: { pay: { ...effort, status: "in_progress" } }, early: [] },
  });
});

test("a transition that changed nothing in the state has no changes", () => {
  expect(changes(newState(), newState(), { kind: "tick" })).toEqual({ old: null, new: null });
});
