import { completeStep, completeUndo, failStep, failUndo, tryStep, tryUndo } from "./begin.ts";
import { needsUndo } from "./backward.ts";
import { stepAt, type StepNode } from "./definition.ts";
import { endEffort, newEffort, toStorableText, type Draft } from "./draft.ts";
import type { WorkOutcome } from "./input.ts";
import { type Effort, hasLostRace, type StepRecord } from "./state.ts";
import { kindMismatch } from "./mismatch.ts";

/** Why an input was ignored. Undefined if it was used. */
export type IgnoreReason = string | undefined;

/** Applies the outcome of a step, also if it arrives after the step was given up. */
export function settleStep(draft: Draft, stepPath: string, outcome: WorkOutcome): IgnoreReason {
  const record = draft.state.records[stepPath];
  if (record === undefined) return "this step has not begun";
  const step = stepAt(draft.definition, stepPath);
  if (record.status !== "in_progress") return settleLate(draft, stepPath, step, record, outcome);
  switch (outcome.kind) {
    case "done":
      completeStep(draft, stepPath, record, outcome.result);
      return undefined;
    case "refused":
      // A refusal says nothing about an earlier attempt, which may have had an effect.
      if (record.outcome !== "unknown") record.outcome = "not_done";
      failStep(draft, stepPath, record, outcome.error);
      return undefined;
    default:
      tryAgainOrFail(draft, stepPath, step, record, outcome);
      return undefined;
  }
}

type Failure = Extract<WorkOutcome, { kind: "failed" | "unknown" }>;

function tryAgainOrFail(
  draft: Draft,
  stepPath: string,
  step: StepNode | undefined,
  record: StepRecord,
  failure: Failure,
): void {
  const certain = failure.kind === "failed" && failure.certain === true;
  // An earlier attempt may have had an effect even if this one had none.
  record.outcome = certain && record.outcome !== "unknown" ? "not_done" : "unknown";
  const isWanted = draft.state.direction === "forward" && record.abandoned === undefined;
  const permanent = failure.kind === "failed" && failure.permanent === true;
  if (!isWanted || permanent || step === undefined || record.attempt >= step.retry.maxAttempts) {
    failStep(draft, stepPath, record, failure.error);
    return;
  }
  waitForNextTry(draft, step, record, { undo: false, error: failure.error });
  draft.note({ event: "failed", stepPath, from: "in_progress", to: "in_progress", note: failure.error });
}

function waitForNextTry(
  draft: Draft,
  step: StepNode,
  effort: Effort,
  { undo, error }: { readonly undo: boolean; readonly error: string },
): void {
  effort.nextAtMs = draft.nowMs + draft.delayAfter(step, undo, effort.attempt);
  effort.dueAtMs = undefined;
  effort.attempt += 1;
  effort.error = toStorableText(error);
}

// A success after the step was given up is undone. If the undo has ended already, it runs once more.
function settleLate(
  draft: Draft,
  stepPath: string,
  step: StepNode | undefined,
  record: StepRecord,
  outcome: WorkOutcome,
): IgnoreReason {
  if (outcome.kind !== "done") return "its outcome had been decided before";
  if (record.status === "completed") return "it was known to be done";
  if (record.status === "skipped") return "an operator has decided about it";
  if (isParked(draft, stepPath, record)) {
    completeStep(draft, stepPath, record, outcome.result); // the parked instance waits for this outcome
    return undefined;
  }
  if (record.outcome === "done") return "it was known to be done";
  record.outcome = "done";
  record.result = outcome.result;
  draft.note({ event: "noted", stepPath, note: "a late success" });
  if (needsUndo(draft, record, step)) undoOnceMore(draft, stepPath, step, record);
  return undefined;
}

function isParked({ state, status }: Draft, stepPath: string, record: StepRecord): boolean {
  const parked = status === "failed" && state.direction === "forward" && record.status === "failed";
  return parked && !hasLostRace(state, stepPath);
}

// An undo that ran before the late success may have found nothing to undo, so it runs again. An undo that failed is
// retried as well: the late success shows that the consumer replies again.
function undoOnceMore(draft: Draft, stepPath: string, step: StepNode | undefined, record: StepRecord): void {
  const { undo } = record;
  if (undo === undefined || undo.status === "settled") return;
  const { ids, epoch } = undo;
  const countsFrom = { epoch: epoch + 1, ids: ids.length };
  record.undo = { ...newEffort(draft.nowMs, epoch + 1), ids, status: "in_progress", countsFrom };
  record.status = "compensating";
  tryUndo(draft, stepPath, step, record);
}

/** Applies the outcome of an undo. */
export function settleUndo(draft: Draft, stepPath: string, outcome: WorkOutcome): IgnoreReason {
  const record = draft.state.records[stepPath];
  const step = stepAt(draft.definition, stepPath);
  const undo = record?.undo;
  if (record === undefined || undo === undefined) return "this step is not being undone";
  if (undo.status === "done" || undo.status === "settled") return "it was known to be undone";
  if (outcome.kind === "done") {
    completeUndo(draft, stepPath, record);
    return undefined;
  }
  if (undo.status === "failed") return "its undo had been given up before";
  const permanent = outcome.kind === "refused" || (outcome.kind === "failed" && outcome.permanent === true);
  if (permanent || step === undefined || undo.attempt >= step.undoRetry.maxAttempts) {
    failUndo(draft, stepPath, record, outcome.error);
  } else {
    waitForNextTry(draft, step, undo, { undo: true, error: outcome.error });
    draft.note({
      event: "failed",
      stepPath,
      from: "compensating",
      to: "compensating",
      note: outcome.error,
    });
  }
  return undefined;
}

/** Applies a reply to the step or undo that sent the command with this id. */
export function settleReply(draft: Draft, requestId: string, outcome: WorkOutcome): IgnoreReason {
  for (const [stepPath, record] of Object.entries(draft.state.records)) {
    const { undo } = record;
    if (record.ids.includes(requestId)) {
      return checkReplaced(record, requestId, outcome) ?? settleStep(draft, stepPath, outcome);
    }
    if (undo?.ids.includes(requestId) !== true) continue;
    if (undo.ids.indexOf(requestId) < (undo.countsFrom?.ids ?? 0)) return TOO_EARLY;
    return checkReplaced(undo, requestId, outcome) ?? settleUndo(draft, stepPath, outcome);
  }
  return "no step of this saga sent that command";
}

/** Ignore reason for an undo that ended before its step did. */
export const TOO_EARLY = "the step was done after this undo";

// The failure of an attempt that was replaced, or is about to be, says nothing about the next attempt.
function checkReplaced({ ids, nextAtMs }: Effort, requestId: string, outcome: WorkOutcome): IgnoreReason {
  if (outcome.kind === "done") return undefined;
  if (ids.at(-1) !== requestId) return "a newer try has taken its place";
  return nextAtMs !== undefined && outcome.kind !== "refused" ? "it is going to be tried again" : undefined;
}

/** Applies timers that are due: timeouts and retries. */
export function applyDueTimers(draft: Draft): void {
  for (const [stepPath, record] of Object.entries(draft.state.records)) {
    const step = stepAt(draft.definition, stepPath);
    if (step === undefined) continue; // such an instance is parked, or its undo fails for good
    if (record.status === "in_progress") {
      if (kindMismatch(record, step) === undefined) applyStepTimeout(draft, stepPath, step, record);
    } else if (record.undo?.status === "in_progress") applyUndoTimeout(draft, stepPath, step, record);
  }
}

function applyStepTimeout(draft: Draft, stepPath: string, step: StepNode, record: StepRecord): void {
  const { nowMs } = draft;
  const local = step.work.kind === "run" || step.work.kind === "tx";
  if (record.nextAtMs !== undefined && record.nextAtMs <= nowMs && !local) {
    const note = `try ${record.attempt}`;
    draft.note({ event: "step_executed", stepPath, from: "in_progress", to: "in_progress", note });
    tryStep(draft, stepPath, step, record);
    return;
  }
  if (record.dueAtMs === undefined || record.dueAtMs > nowMs) return;
  if (step.work.kind === "delay") return completeStep(draft, stepPath, record);
  if (step.work.kind === "wait") return applyWaitTimeout(draft, stepPath, step, record);
  const error = `no answer within ${step.timeoutMs ?? 0} ms`;
  tryAgainOrFail(draft, stepPath, step, record, { kind: "unknown", error });
}

function applyWaitTimeout(draft: Draft, stepPath: string, step: StepNode, record: StepRecord): void {
  if (step.work.kind === "wait" && step.work.onTimeout === "continue") {
    completeStep(draft, stepPath, record, null);
    return;
  }
  record.outcome = "not_done";
  failStep(draft, stepPath, record, `nothing came within ${step.timeoutMs ?? 0} ms`);
}

function applyUndoTimeout(draft: Draft, stepPath: string, step: StepNode, record: StepRecord): void {
  const { undo } = record;
  if (undo === undefined) return;
  const local = step.undo?.kind === "run" || step.undo?.kind === "tx";
  if (undo.nextAtMs !== undefined && undo.nextAtMs <= draft.nowMs) {
    if (local) return;
    const note = `try ${undo.attempt}`;
    draft.note({ event: "compensated", stepPath, from: "compensating", to: "compensating", note });
    tryUndo(draft, stepPath, step, record);
  } else if (undo.dueAtMs !== undefined && undo.dueAtMs <= draft.nowMs) {
    settleUndo(draft, stepPath, { kind: "unknown", error: "no answer to its undo in time" });
  }
}

/** Reopens a failed step or undo for another attempt. */
export function reopen(draft: Draft, stepPath: string, step: StepNode, record: StepRecord): void {
  if (record.undo?.status === "failed") {
    const { epoch, ids, countsFrom } = record.undo;
    record.undo = { ...newEffort(draft.nowMs, epoch + 1), ids, status: "in_progress", countsFrom };
    tryUndo(draft, stepPath, step, record);
    return;
  }
  // The step had no effect, so only the current definition counts.
  if (record.outcome === "not_done") {
    record.kind = undefined;
    record.undoable = undefined;
    record.pivot = undefined;
  }
  endEffort(record, draft.nowMs);
  record.status = "in_progress";
  record.endedAtMs = undefined;
  record.abandoned = undefined;
  record.epoch += 1;
  record.attempt = 1;
  tryStep(draft, stepPath, step, record);
}
