import { describe, expect, test } from "vitest";
import type { StepRecord } from "./state.ts";
import {
  abortReason,
  actionAfterRound,
  actionWithoutPermit,
  canRelease,
  canYieldPermit,
  claimMoves,
  type ClaimEvent,
  type ClaimState,
  isStopping,
  mayStartWork,
  outcomeAction,
  raiseSignal,
  skipRound,
  type TaskState,
} from "./task-state.ts";

const idle: TaskState = { claim: "active", round: "resting", signal: "none", running: 0, saving: 0 };
const states = Object.keys(claimMoves) as ClaimState[];

/** Applies events in order, beginning with an active claim. */
function after(...events: readonly ClaimEvent[]): ClaimState {
  return events.reduce<ClaimState>((state, event) => claimMoves[state][event], "active");
}

describe("claim states", () => {
  test("a write that releases the claim ends it, and one that does not lets the task continue", () => {
    expect(after("release")).toBe("releasing");
    expect(after("release", "released")).toBe("released");
    expect(after("release", "kept")).toBe("active");
  });

  test("a stop outlasts a write, in whatever order both begin", () => {
    expect(after("stop", "release")).toBe("stopping_releasing");
    expect(after("release", "stop")).toBe("stopping_releasing");
    expect(after("release", "stop", "kept")).toBe("stopping");
    expect(after("stop", "release", "kept")).toBe("stopping");
    expect(after("stop", "kept")).toBe("stopping");
  });

  test.each(states)("from %s, no event but a kept claim makes the task active", (state) => {
    const events = Object.keys(claimMoves[state]) as ClaimEvent[];
    const leading = events.filter((event) => claimMoves[state][event] === "active");
    expect(leading).toEqual(state === "active" || state === "releasing" ? ["kept"] : []);
  });

  test.each(["released", "lost"] as const)("%s is final", (state) => {
    expect(new Set(Object.values(claimMoves[state]))).toEqual(new Set([state]));
  });

  test("work starts only while the claim is active, and rounds are skipped while it is released", () => {
    expect(states.filter(mayStartWork)).toEqual(["active"]);
    expect(states.filter(isStopping)).toEqual(["stopping", "stopping_releasing", "lost"]);
    expect(Object.fromEntries(states.map((state) => [state, skipRound(state)]))).toEqual({
      active: undefined,
      stopping: undefined,
      releasing: "releasing",
      stopping_releasing: "releasing",
      released: "over",
      lost: undefined,
    });
  });
});

test("a wake-up does not hide input that was signalled before", () => {
  expect(raiseSignal("none", "wake_up")).toBe("wake_up");
  expect(raiseSignal("wake_up", "input")).toBe("input");
  expect(raiseSignal("input", "wake_up")).toBe("input");
});

test.each([
  ["nothing is left to do", idle, false, "over"],
  ["a timer is due", idle, true, "wait"],
  ["input has arrived", { ...idle, signal: "input" }, false, "wait"],
  ["a step runs", { ...idle, running: 1 }, false, "wait"],
  ["the worker stops, although a timer is due", { ...idle, claim: "stopping" }, true, "over"],
  ["the worker stops while a step runs", { ...idle, claim: "stopping", running: 1 }, true, "wait"],
] as const)("after a round, when %s", (_, task, isTimerDue, action) => {
  expect(actionAfterRound(task, isTimerDue)).toBe(action);
});

test("a task without a permit ends only if its turn in the queue expired and nothing runs", () => {
  expect(actionWithoutPermit(0, false)).toBe("queued");
  expect(actionWithoutPermit(1, true)).toBe("queued");
  expect(actionWithoutPermit(0, true)).toBe("over");
});

test("a permit is free for others only between rounds, when all running work waits for its write", () => {
  expect(canYieldPermit(idle)).toBe(false);
  expect(canYieldPermit({ ...idle, running: 2, saving: 2 })).toBe(true);
  expect(canYieldPermit({ ...idle, running: 2, saving: 1 })).toBe(false);
  expect(canYieldPermit({ ...idle, round: "planning", running: 1, saving: 1 })).toBe(false);
});

test("a write releases the claim if this task has nothing else to do", () => {
  const last = (task: Partial<TaskState>, ownRunning: 0 | 1, hasDueWork: boolean): boolean =>
    canRelease({ ...idle, ...task }, ownRunning, () => hasDueWork);
  expect(last({ running: 1 }, 1, false)).toBe(true);
  expect(last({ running: 1 }, 1, true)).toBe(false);
  expect(last({ running: 1, claim: "stopping" }, 1, true)).toBe(true);
  expect(last({ running: 2 }, 1, false)).toBe(false);
  expect(last({ running: 1 }, 0, false)).toBe(false);
  expect(last({ signal: "input" }, 0, false)).toBe(false);
  expect(last({ round: "applying_input" }, 0, false)).toBe(false);
});

test("an outcome is saved, left for the next worker, or dropped so that the step runs again", () => {
  expect(outcomeAction("active", false)).toBe("save");
  expect(outcomeAction("stopping", true)).toBe("save");
  expect(outcomeAction("stopping", false)).toBe("drop");
  expect(outcomeAction("lost", true)).toBe("report late");
});

test("a running step is aborted when the worker stops or the saga does not need it any more", () => {
  const record = (changes: Partial<StepRecord>): StepRecord =>
    ({ status: "in_progress", ...changes }) as StepRecord;
  expect(abortReason("active", record({}), false)).toBeUndefined();
  expect(abortReason("stopping", record({}), false)).toBe("the worker stops");
  expect(abortReason("active", record({ abandoned: "cancelled" }), false)).toBe("cancelled");
  expect(abortReason("active", record({ status: "failed" }), false)).toContain("does not need it");
  expect(abortReason("active", undefined, false)).toContain("does not need it");
  const undoing = record({ status: "compensating", undo: { status: "in_progress" } as StepRecord["undo"] });
  expect(abortReason("active", undoing, true)).toBeUndefined();
});
