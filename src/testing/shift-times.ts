import type { SagaState, StepRecord } from "../saga/index.ts";

type Times = Pick<StepRecord, "nextAtMs" | "dueAtMs" | "startedAtMs" | "endedAtMs">;

/** The state as it would be had everything in it happened so much earlier. */
export function shiftState(state: SagaState, byMs: number): SagaState {
  const records = Object.entries(state.records).map(([place, record]) => [place, shiftRecord(record, byMs)]);
  return {
    ...state,
    records: Object.fromEntries(records) as SagaState["records"],
    ...(state.deadlineAtMs === undefined ? {} : { deadlineAtMs: state.deadlineAtMs - byMs }),
  };
}

function shiftRecord(record: StepRecord, byMs: number): StepRecord {
  const { undo } = record;
  const moved = { ...record, ...shiftTimes(record, byMs) };
  return undo === undefined ? moved : { ...moved, undo: { ...undo, ...shiftTimes(undo, byMs) } };
}

function shiftTimes({ nextAtMs, dueAtMs, startedAtMs, endedAtMs }: Times, byMs: number): Times {
  return {
    startedAtMs: startedAtMs - byMs,
    ...(nextAtMs === undefined ? {} : { nextAtMs: nextAtMs - byMs }),
    ...(dueAtMs === undefined ? {} : { dueAtMs: dueAtMs - byMs }),
    ...(endedAtMs === undefined ? {} : { endedAtMs: endedAtMs - byMs }),
  };
}
