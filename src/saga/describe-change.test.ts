import { describe, expect, test } from "vitest";
import type { Decision } from "./decision.ts";
import { describeStatusChange, describeStepChange, listStepsInProgress } from "./describe-change.ts";
import { newRecord } from "./draft.ts";
import { newState, type SagaState } from "./state.ts";
import type { SubjectCipher } from "./subject-cipher.ts";

const before = { id: "s-1", type: "order", key: "o-1", status: "running" } as const;
const decision = (rest: Partial<Decision>): Decision => ({
  status: "running",
  state: newState(),
  effects: [],
  changes: [],
  ...rest,
});

describe("a change of the status", () => {
  test("to compensating names the step that failed and why", () => {
    const state = { ...newState(), cause: 'step "pay" failed: declined' };
    const changes = [{ event: "failed", stepPath: "pay", note: "declined" } as const];
    const turned = decision({ status: "compensating", state, changes });
    expect(describeStatusChange(before, turned, "message:m-1")).toEqual({
      type: "order",
      id: "s-1",
      key: "o-1",
      from: "running",
      to: "compensating",
      step: "pay",
      cause: 'step "pay" failed: declined',
      error: null,
    });
  });

  test("to failed names the steps of the incident and their error", () => {
    const effects = [{ kind: "open incident", stepPaths: ["a", "b"], error: "no refund" } as const];
    expect(describeStatusChange(before, decision({ status: "failed", effects }), "clock")).toMatchObject({
      step: "a, b",
      cause: "no refund",
      error: "no refund",
    });
  });

  test("to another status names the steps in progress, or the last one, and what moved it", () => {
    const records = { pay: newRecord(0, "in_progress", 1), mail: newRecord(0, "in_progress", 1) };
    const running = decision({ state: { ...newState(), records } });
    const started = { ...before, status: "started" } as const;
    expect(describeStatusChange(started, running, "start:s-1")).toMatchObject({
      step: "pay, mail",
      cause: "start",
    });
    const changes = [
      { event: "step_executed", stepPath: "mail", from: "in_progress", to: "completed" } as const,
    ];
    expect(
      describeStatusChange(before, decision({ status: "completed", changes }), "worker:w"),
    ).toMatchObject({ step: "mail", cause: "worker:w", error: null });
  });

  test("of a saga about a person shows neither its key nor its errors", () => {
    const seal = { subject: "ann" } as unknown as SubjectCipher;
    const effects = [{ kind: "open incident", stepPaths: ["a"], error: "ann is unknown" } as const];
    const failed = describeStatusChange(
      { ...before, seal },
      decision({ status: "failed", effects }),
      "clock",
    );
    expect(failed).toMatchObject({ key: "[sealed]", step: "a", cause: "[sealed]", error: "[sealed]" });
    const record = { ...newRecord(0, "failed", 1), error: "ann is unknown" };
    expect(describeStepChange({ ...before, seal }, "a", record, "worker:w")).toMatchObject({
      key: "[sealed]",
      cause: "worker:w",
      error: "[sealed]",
    });
  });
});

test("a damaged state has no steps in progress", () => {
  const damaged = [{}, { records: null }, { records: { one: null } }] as unknown as SagaState[];
  expect(damaged.map(listStepsInProgress)).toEqual([null, null, null]);
});

test("a change of a step has its error only if the step failed", () => {
  const record = { ...newRecord(1_000, "failed", 1), endedAtMs: 1_250, error: "declined" };
  const names = { type: "order", id: "s-1", key: "o-1", step: "pay", cause: "worker:w" };
  expect(describeStepChange(before, "pay", record, "worker:w")).toEqual({
    ...names,
    status: "failed",
    error: "declined",
    durationMs: 250,
  });
  expect(describeStepChange(before, "pay", { ...record, status: "completed" }, "worker:w").error).toBeNull();
});
