import { abandon, completeStep, completeUndo } from "./begin.ts";
import { hasLostRace, type SagaState, type StepRecord } from "./state.ts";
import { nodeAt, stepAt, type SagaDefinition } from "./definition.ts";
import { endEffort, newRecord, type Draft } from "./draft.ts";
import type { SagaInput } from "./input.ts";
import { findMismatches, kindChange, undoMismatch } from "./mismatch.ts";
import { reopen, type IgnoreReason } from "./settle-step.ts";

type OperatorDecision = Extract<SagaInput, { kind: "retry" | "skip" | "settle" }>;

/** Turns the instance backward and abandons the steps in flight. */
export function startCompensation(draft: Draft, cause: string): void {
  draft.state.direction = "backward";
  draft.state.cause = cause;
  draft.state.mismatches = undefined;
  draft.note({ event: "noted", note: cause });
  for (const stepPath of Object.keys(draft.state.records)) {
    abandon(draft, stepPath, stepAt(draft.definition, stepPath), cause);
  }
}

/** Why an instance cannot be compensated. Undefined if it can. */
export function whyNotCompensate(draft: Draft, evenCompleted: boolean): IgnoreReason {
  const { state, status } = draft;
  if (state.direction === "backward") return "it is being compensated already, or was";
  if (state.pivoted) return "it is past its pivot and can only go forward";
  if (pivotMayHaveHappened(draft)) return "its pivot has begun, and its outcome is not known yet";
  const completed = status === "completed" || state.completed === true;
  if (completed && !evenCompleted) return "it has completed";
  // The parent has used the child's results. Compensating only the child would invalidate them.
  if (completed && draft.snapshot.parent !== null) {
    return "it is part of another saga, which has to be compensated instead";
  }
  return undefined;
}

// While the outcome of the pivot is unknown, neither compensating nor continuing is safe.
export function pivotMayHaveHappened({ definition, state }: Draft): boolean {
  return Object.entries(state.records).some(
    ([stepPath, { status, outcome, pivot }]) =>
      (pivot === true || stepAt(definition, stepPath)?.pivot === true) &&
      (status === "in_progress" || (status === "failed" && outcome === "unknown")),
  );
}

/** Applies an operator's decision about steps that have failed permanently. */
export function applyOperatorDecision(draft: Draft, input: OperatorDecision): IgnoreReason {
  const chosen = findStuckSteps(draft.state).filter(
    (stepPath) => input.stepPath === undefined || input.stepPath === stepPath,
  );
  if (chosen.length === 0) {
    return input.stepPath === undefined
      ? "no step of it has failed"
      : `step "${input.stepPath}" has not failed`;
  }
  const refusals = chosen.map((stepPath) => findRefusal(draft, stepPath, input.kind));
  if (refusals.every((why) => why !== undefined)) return refusals[0];
  for (const [index, stepPath] of chosen.entries()) {
    if (refusals[index] !== undefined) continue;
    draft.note({ event: "noted", stepPath, note: `${input.kind} by ${input.by.actor}: ${input.by.reason}` });
    carryOutDecision(draft, stepPath, input);
  }
  return undefined;
}

// A step that the definition lacks can neither be retried nor settled: the definition has no next step for it.
function findRefusal(
  { definition, state }: Draft,
  stepPath: string,
  kind: OperatorDecision["kind"],
): IgnoreReason {
  const isForward = state.mismatches?.[stepPath] !== undefined;
  if (kind === "skip" || (kind === "settle" && !isForward)) return undefined;
  const why = isForward
    ? findMismatches(definition, state)?.[stepPath]
    : retryMismatch(definition, stepPath, state.records[stepPath]);
  if (why === undefined || (kind === "settle" && nodeAt(definition, stepPath) !== undefined))
    return undefined;
  return `${why}. Deploy the definition that has it and retry, or skip it`;
}

function retryMismatch(
  definition: SagaDefinition,
  stepPath: string,
  record: StepRecord | undefined,
): string | undefined {
  if (record === undefined) return undefined;
  const step = stepAt(definition, stepPath);
  if (record.undo?.status === "failed") return undoMismatch(stepPath, step, record);
  // A step that may have happened is not retried as another kind, which could not detect the first effect.
  return step === undefined || record.outcome !== "unknown" ? undefined : kindChange(record, step);
}

/** Step paths that wait for an operator: definition mismatches if there are any, else permanently failed steps and undos. */
export function findStuckSteps(state: SagaState): string[] {
  if (state.mismatches !== undefined) return Object.keys(state.mismatches);
  const isStuck = (stepPath: string, { status, undo }: StepRecord): boolean => {
    if (undo?.status === "failed") return true;
    return state.direction === "forward" && status === "failed" && !hasLostRace(state, stepPath);
  };
  return Object.keys(state.records).filter((stepPath) => {
    const record = state.records[stepPath];
    return record !== undefined && isStuck(stepPath, record);
  });
}

/**
 * The commands of the steps and undos that wait for an operator because they failed, with their step paths. Their dead
 * letters belong to the incident.
 */
export function listFailedCommands(
  state: SagaState,
): readonly { readonly stepPath: string; readonly ids: readonly string[] }[] {
  if (state.mismatches !== undefined) return [];
  return findStuckSteps(state).flatMap((stepPath) => {
    const record = state.records[stepPath];
    const effort = record?.undo?.status === "failed" ? record.undo : record;
    return effort === undefined || effort.kind !== "send" || effort.ids.length === 0
      ? []
      : [{ stepPath, ids: effort.ids }];
  });
}

function carryOutDecision(draft: Draft, stepPath: string, input: OperatorDecision): void {
  const { state, nowMs } = draft;
  if (input.kind === "retry" && state.mismatches?.[stepPath] !== undefined) return; // the record fits the definition again and continues
  // A branch has no record before an operator decides about it.
  const record = (state.records[stepPath] ??= newRecord(nowMs, "failed", (state.units += 1)));
  const undoing = record.undo?.status === "failed";
  switch (input.kind) {
    case "retry": {
      const step = stepAt(draft.definition, stepPath);
      if (step !== undefined) reopen(draft, stepPath, step, record);
      else forgetChoice(draft, stepPath);
      return;
    }
    case "skip":
      if (undoing && record.undo !== undefined) {
        endEffort(record.undo, nowMs, record.undo.error);
        record.undo.status = "settled";
      } else if (record.status === "in_progress") endEffort(record, nowMs);
      record.status = "skipped";
      return;
    case "settle":
      if (undoing) completeUndo(draft, stepPath, record);
      else completeStep(draft, stepPath, record, input.result);
  }
}

// A failed branch chooses again. A repetition that used up its rounds gets one more.
function forgetChoice(draft: Draft, stepPath: string): void {
  delete draft.state.records[stepPath];
  delete draft.state.choices[stepPath];
  const rounds = draft.state.rounds[stepPath];
  if (rounds?.spent !== true) return;
  rounds.spent = undefined;
  rounds.round += 1;
}
