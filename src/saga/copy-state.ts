import type { SagaState, StepRecord } from "./state.ts";

/**
 * A copy that a decision may change. What others put into the state, results and events, is only read and stays the same
 * object. Each record gets all its fields in one order, whatever it had: to the engine below us they are then all of
 * one kind, which makes every look at them cheaper. What a newer version of this library knows is kept.
 */
export function copyState(state: SagaState): SagaState {
  const records: Record<string, StepRecord> = {};
  for (const place of Object.keys(state.records)) {
    const record = state.records[place];
    if (record !== undefined) records[place] = copyRecord(record);
  }
  const copy: SagaState = {
    direction: state.direction,
    pivoted: state.pivoted,
    units: state.units,
    records,
    choices: { ...state.choices },
    rounds: copyRounds(state.rounds),
    early: [...state.early],
    deadlineAtMs: state.deadlineAtMs,
    completed: state.completed,
    cause: state.cause,
    mismatches: state.mismatches,
  };
  return copyUnknownFields(copy, state);
}

function copyRecord(record: StepRecord): StepRecord {
  const { undo } = record;
  const copy: StepRecord = {
    epoch: record.epoch,
    attempt: record.attempt,
    ids: [...record.ids],
    startedAtMs: record.startedAtMs,
    status: record.status,
    unit: record.unit,
    nextAtMs: record.nextAtMs,
    dueAtMs: record.dueAtMs,
    endedAtMs: record.endedAtMs,
    error: record.error,
    outcome: record.outcome,
    result: record.result,
    abandoned: record.abandoned,
    undo: undo === undefined ? undefined : { ...undo, ids: [...undo.ids] },
    kind: record.kind,
    undoable: record.undoable,
    pivot: record.pivot,
  };
  return copyUnknownFields(copy, record);
}

function copyRounds(rounds: SagaState["rounds"]): SagaState["rounds"] {
  const copy: SagaState["rounds"] = {};
  for (const [place, round] of Object.entries(rounds)) copy[place] = { ...round };
  return copy;
}

function copyUnknownFields<T extends object>(copy: T, from: T): T {
  for (const key in from) if (!(key in copy)) copy[key] = from[key];
  return copy;
}
