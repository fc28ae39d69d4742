import { abandon, describeUndoFailure, failUndo, tryUndo } from "./begin.ts";
import { stepAt, type StepNode } from "./definition.ts";
import { newEffort, type Draft } from "./draft.ts";
import type { Progress } from "./forward.ts";
import { hasEffect, kindMismatch, recordMismatch, undoMismatch } from "./mismatch.ts";
import type { StepRecord } from "./state.ts";

/** A record to undo. `step` is undefined when the definition no longer has the step. */
interface UndoCandidate {
  readonly stepPath: string;
  readonly step: StepNode | undefined;
}

/** Undoes every step that happened or may have happened, latest unit first. Steps of one unit are undone in parallel. */
export function goBackward(draft: Draft): Progress {
  const units = new Map<number, UndoCandidate[]>();
  for (const [stepPath, record] of Object.entries(draft.state.records)) {
    const step = stepAt(draft.definition, stepPath);
    if (step === undefined && (!hasEffect(record) || isChoice(draft, stepPath, record))) continue;
    const members = units.get(record.unit);
    if (members === undefined) units.set(record.unit, [{ stepPath, step }]);
    else members.push({ stepPath, step });
  }
  for (const unit of [...units.keys()].sort((a, b) => b - a)) {
    const progress = undoUnit(draft, units.get(unit) ?? []);
    if (progress !== "done") return progress;
  }
  return "done";
}

// The record of a branch or a repetition holds a decision, which has no effect to undo.
function isChoice({ definition }: Draft, stepPath: string, record: StepRecord): boolean {
  return recordMismatch(definition, stepPath, record) === undefined;
}

export function undoUnit(draft: Draft, members: readonly UndoCandidate[]): Progress {
  const progress = members.map(({ stepPath, step }) => undoOne(draft, stepPath, step));
  if (progress.includes("waiting")) return "waiting";
  return progress.includes("failed") ? "failed" : "done";
}

function undoOne(draft: Draft, stepPath: string, step: StepNode | undefined): Progress {
  const record = draft.state.records[stepPath];
  if (record === undefined) return "done";
  if (record.status === "in_progress") {
    // Wait for work in flight: an undo that runs before the step would leave the step's effect in place.
    if (step !== undefined && kindMismatch(record, step) === undefined) return "waiting";
    abandon(draft, stepPath, step, "its step has changed");
  }
  if (!needsUndo(draft, record, step)) return "done";
  if (record.undo === undefined) {
    record.undo = { ...newEffort(draft.nowMs), status: "in_progress" };
    draft.note({ event: "compensated", stepPath, from: record.status, to: "compensating" });
    record.status = "compensating";
    tryUndo(draft, stepPath, step, record);
  } else if (record.undo.status === "in_progress") {
    const why = undoMismatch(stepPath, step, record);
    if (why !== undefined) failUndo(draft, stepPath, record, describeUndoFailure(why));
  }
  switch (record.undo.status) {
    case "in_progress":
      return "waiting";
    case "failed":
      return "failed";
    default:
      return "done";
  }
}

/**
 * Whether the effect of a step has to be undone. True as well if the outcome is unknown, and if the definition has no
 * undo any more: the missing undo then opens an incident.
 */
export function needsUndo({ state }: Draft, record: StepRecord, step: StepNode | undefined): boolean {
  const { outcome, status, undo, kind, undoable } = record;
  if (status === "skipped" || (outcome !== "done" && outcome !== "unknown")) return false;
  if (step === undefined || undo?.status === "in_progress" || undo?.status === "failed") return true;
  if (undoable === true) return true;
  // A wait has no effect, even if the definition has since replaced it with a step that does.
  if (kind === "wait" || kind === "delay") return false;
  // A waiting step sends no commands. If the record has command ids, an earlier definition had another kind of step here.
  if (step.work.kind === "wait" || step.work.kind === "delay") return record.ids.length > 0;
  // Steps after the pivot have no undo. If the instance is compensating anyway, it began with another definition.
  if (step.undo === null) return state.direction === "backward";
  return step.undo.kind !== "none";
}
