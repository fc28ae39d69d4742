import type { Json } from "../message/index.ts";
import { retryDelay } from "../retry/index.ts";
import type { Change, DecisionPorts, SagaEffect } from "./decision.ts";
import {
  type SagaDefinition,
  stepAt,
  type StepContext,
  type StepNode,
  stripRound,
  type UndoContext,
} from "./definition.ts";
import { stepsFor } from "./event-key.ts";
import { readInput, readResult } from "./step-values.ts";
import type { Effort, SagaState, SagaStatus, Snapshot, StepRecord } from "./state.ts";

/** A decision in progress: a mutable copy of the state, with the effects and history lines collected so far. */
export class Draft {
  readonly definition: SagaDefinition;
  readonly snapshot: Snapshot;
  readonly ports: DecisionPorts;
  readonly state: SagaState;
  readonly effects: SagaEffect[] = [];
  readonly changes: Change[] = [];
  status: SagaStatus;

  constructor(definition: SagaDefinition, snapshot: Snapshot, ports: DecisionPorts) {
    this.definition = definition;
    this.snapshot = snapshot;
    this.ports = ports;
    this.state = copyState(snapshot.state);
    this.status = snapshot.status;
  }

  get nowMs(): number {
    return this.ports.nowMs;
  }

  /** Returns the argument that the functions of the definition get. */
  stepContext(): StepContext {
    const { definition, snapshot, state } = this;
    return toStepContext(definition, { ...snapshot, state });
  }

  /** Returns the paths of the steps that receive an event. */
  stepsFor(event: { readonly type: string; readonly data: Json }): ReadonlySet<string> {
    const { definition, snapshot } = this;
    return stepsFor(definition, () => snapshot.key ?? definition.key(snapshot.input), event);
  }

  /** Adds a history line. */
  note(change: Change): void {
    this.changes.push(change);
  }

  /** Returns how many milliseconds to wait before the next attempt at a step or its undo. */
  delayAfter(step: StepNode, undo: boolean, attempt: number): number {
    return retryDelay(undo ? step.undoRetry : step.retry, attempt, this.ports.random);
  }
}

/** Returns the argument that the functions of a definition get. */
export function toStepContext(
  definition: SagaDefinition,
  { id, input, state }: Pick<Snapshot, "id" | "input" | "state">,
): StepContext {
  const steps = collectResults(state, (stepPath, result) => readResult(stepAt(definition, stepPath), result));
  return { input: readInput(definition, input), steps, sagaId: id };
}

/**
 * Results by step name, as the state holds them or converted by `read`. For a repeated step the latest round wins.
 */
export function collectResults(
  { records }: SagaState,
  read?: (stepPath: string, result: Json | undefined) => unknown,
): Record<string, unknown> {
  const results: Record<string, unknown> = Object.create(null) as Record<string, unknown>;
  for (const [stepPath, stored] of listCompletedResults(records)) {
    const result = read === undefined ? stored : read(stepPath, stored);
    const [name = "", member] = stripRound(stepPath).split(".");
    if (member === undefined) results[name] = result;
    else results[name] = { ...(results[name] as Record<string, unknown>), [member]: result };
  }
  return results;
}

// Steps in the order in which they began, so that later rounds of a step come last.
function listCompletedResults(
  records: SagaState["records"],
): readonly (readonly [string, Json | undefined])[] {
  const completed = Object.keys(records).filter((stepPath) => records[stepPath]?.status === "completed");
  const unitOf = (stepPath: string): number => records[stepPath]?.unit ?? 0;
  if (completed.length > 1) completed.sort((a, b) => unitOf(a) - unitOf(b));
  return completed.map((stepPath) => [stepPath, records[stepPath]?.result]);
}

export function newEffort(nowMs: number, epoch = 1): Effort {
  return { epoch, attempt: 1, ids: [], startedAtMs: nowMs };
}

export function newRecord(nowMs: number, status: StepRecord["status"], unit: number): StepRecord {
  return {
    epoch: 1,
    attempt: 1,
    ids: [],
    startedAtMs: nowMs,
    status,
    unit,
    nextAtMs: undefined,
    dueAtMs: undefined,
    endedAtMs: undefined,
    error: undefined,
    outcome: undefined,
    result: undefined,
    abandoned: undefined,
    undo: undefined,
    kind: undefined,
    undoable: undefined,
    pivot: undefined,
  };
}

/** Ends an effort: clears its timers and stores its error, if any. */
export function endEffort(effort: Effort, nowMs: number, error?: string): void {
  effort.nextAtMs = undefined;
  effort.dueAtMs = undefined;
  effort.endedAtMs = nowMs;
  effort.error = error === undefined ? undefined : toStorableText(error);
}

// PostgreSQL rejects NUL characters and lone surrogates.
const UNSTORABLE = /[\0\p{Cs}]/gu;

/** Cuts an error text to 1,000 characters and replaces characters that PostgreSQL cannot store. */
export function toStorableText(error: string): string {
  return error.slice(0, 1_000).replace(UNSTORABLE, "\uFFFD");
}

/** Outcome and result of a step, for its undo function. */
export function toUndoContext(step: StepNode, { outcome, result }: StepRecord): UndoContext {
  return outcome === "done" ? { outcome: "done", result: readResult(step, result) } : { outcome: "unknown" };
}

/**
 * Copies the state, so that a decision may change the copy. Results and events are never changed, so both share them. Each
 * record gets all fields in one order, so that V8 gives all records one hidden class and reads them faster. Fields that a
 * newer release has written are kept.
 */
function copyState(state: SagaState): SagaState {
  const records: Record<string, StepRecord> = {};
  for (const stepPath of Object.keys(state.records)) {
    const record = state.records[stepPath];
    if (record !== undefined) records[stepPath] = copyRecord(record);
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
  for (const [stepPath, round] of Object.entries(rounds)) copy[stepPath] = { ...round };
  return copy;
}

function copyUnknownFields<T extends object>(copy: T, from: T): T {
  for (const key in from) if (!(key in copy)) copy[key] = from[key];
  return copy;
}
