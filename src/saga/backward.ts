import { tryUndo } from "./begin.ts";
import { stepAt, type StepNode } from "./definition.ts";
import { newEffort, type Draft } from "./draft.ts";
import type { Progress } from "./forward.ts";
import type { StepRecord } from "./state.ts";

/** Undoes what was done or may have been done, the latest first; what began together is undone together. */
export function goBackward(draft: Draft): Progress {
  const units = new Map<number, { place: string; step: StepNode }[]>();
  for (const [place, { unit }] of Object.entries(draft.state.records)) {
    const step = stepAt(draft.definition, place);
    if (step === undefined) continue;
    const members = units.get(unit);
    if (members === undefined) units.set(unit, [{ place, step }]);
    else members.push({ place, step });
  }
  for (const unit of [...units.keys()].sort((a, b) => b - a)) {
    const progress = undoUnit(draft, units.get(unit) ?? []);
    if (progress !== "done") return progress;
  }
  return "done";
}

export function undoUnit(
  draft: Draft,
  members: readonly { readonly place: string; readonly step: StepNode }[],
): Progress {
  const progress = members.map(({ place, step }) => undoOne(draft, place, step));
  if (progress.includes("waiting")) return "waiting";
  return progress.includes("failed") ? "failed" : "done";
}

function undoOne(draft: Draft, place: string, step: StepNode): Progress {
  const record = draft.state.records[place];
  if (record === undefined) return "done";
  // Work that is being done in this moment is waited for: undone before it is done, it would be done after all.
  if (record.status === "in_progress") return "waiting";
  if (!needsUndo(record, step)) return "done";
  if (record.undo === undefined) {
    record.undo = { ...newEffort(draft.nowMs), status: "in_progress" };
    draft.note({ event: "compensated", place, from: record.status, to: "compensating" });
    record.status = "compensating";
    tryUndo(draft, place, step, record);
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

/** Not only what succeeded: what nobody knows about is undone too. */
export function needsUndo({ outcome, status }: StepRecord, step: StepNode): boolean {
  if (step.undo === null || step.undo.kind === "none" || status === "skipped") return false;
  if (step.work.kind === "wait" || step.work.kind === "delay") return false;
  return outcome === "done" || outcome === "unknown";
}
