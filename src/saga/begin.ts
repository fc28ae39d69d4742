import { errorText } from "../errors/index.ts";
import type { Json } from "../message/index.ts";
import { stripRound, type StepNode } from "./definition.ts";
import type { SagaEffect } from "./decision.ts";
import { endEffort, newRecord, toStorableText, toUndoContext, type Draft } from "./draft.ts";
import { hasUndo, kindMismatch, onlyWaits, undoMismatch } from "./mismatch.ts";
import type { StepRecord } from "./state.ts";

/** Writes down that a step begins, before anything of it happens. */
export function beginStep(draft: Draft, place: string, step: StepNode, unit: number): StepRecord {
  const record = newRecord(draft.nowMs, "in_progress", unit);
  draft.state.records[place] = record;
  draft.note({ event: "step_executed", place, from: "pending", to: "in_progress" });
  tryStep(draft, place, step, record);
  return record;
}

/** One try: a command goes out, local work becomes due, or a wait begins. */
export function tryStep(draft: Draft, place: string, step: StepNode, record: StepRecord): void {
  const { nowMs } = draft;
  const { work, timeoutMs } = step;
  noteDefinition(record, step);
  record.nextAtMs = undefined;
  record.dueAtMs = timeoutMs === null ? undefined : nowMs + timeoutMs;
  try {
    switch (work.kind) {
      case "send": {
        const data = work.data(draft.stepContext());
        const { epoch } = record;
        const earlier = record.ids.slice();
        const id = draft.ports.newId();
        const { command } = work;
        const supersedes = earlier.length === 0 ? {} : { supersedes: { type: command.name, ids: earlier } };
        draft.effects.push({ kind: "send", place, undo: false, epoch, command, data, id, ...supersedes });
        record.ids.push(id);
        return;
      }
      case "run":
      case "tx":
        record.nextAtMs = nowMs;
        record.dueAtMs = undefined; // whoever does the work watches its time
        return;
      case "wait":
        return takeEarlyEvent(draft, place, record);
      case "delay":
        record.dueAtMs = nowMs + checkDelay(work.delayMs(draft.stepContext()));
        return;
      case "child": {
        const input = work.input(draft.stepContext());
        const id = draft.ports.newId();
        record.ids.push(id);
        draft.effects.push({ kind: "start child", place, id, definition: work.saga, input });
        return;
      }
    }
  } catch (thrown) {
    record.outcome = record.ids.length === 0 ? "not_done" : "unknown";
    failStep(draft, place, record, `its own function failed: ${storableErrorText(thrown)}`);
  }
}

// An earlier try may have been made with an undo, or as the pivot: a later definition does not take that back.
function noteDefinition(record: StepRecord, step: StepNode): void {
  record.kind ??= step.work.kind;
  if (hasUndo(step)) record.undoable = true;
  if (step.pivot) record.pivot = true;
}

/** One try to undo a step. Without an undo in the definition the undo fails for good. */
export function tryUndo(draft: Draft, place: string, step: StepNode | undefined, record: StepRecord): void {
  const { undo } = record;
  if (undo === undefined) return;
  undo.nextAtMs = undefined;
  undo.dueAtMs = undefined;
  const why = undoMismatch(place, step, record);
  if (why !== undefined || step === undefined || step.undo === null || step.undo.kind === "none") {
    return failUndo(draft, place, record, describeUndoFailure(why));
  }
  undo.kind = step.undo.kind;
  switch (step.undo.kind) {
    case "send":
      try {
        const data = step.undo.data({ ...draft.stepContext(), ...toUndoContext(record) });
        const id = draft.ports.newId();
        const { command } = step.undo;
        const { epoch } = undo;
        const refers = referToCommands(step, record, command.name);
        draft.effects.push({ kind: "send", place, undo: true, epoch, command, data, id, ...refers });
        undo.ids.push(id);
        undo.dueAtMs = draft.nowMs + (step.timeoutMs ?? 30_000);
      } catch (thrown) {
        failUndo(draft, place, record, `its own function failed: ${storableErrorText(thrown)}`);
      }
      return;
    case "run":
    case "tx":
      undo.nextAtMs = draft.nowMs;
      return;
    case "child": {
      const { epoch, attempt } = undo;
      // A step of another kind, begun by a release that did not store kinds: no child would ever answer.
      if (record.ids.length === 0)
        return failUndo(draft, place, record, describeUndoFailure("it has no child saga"));
      const kind = "revoke child";
      draft.effects.push(...record.ids.map((id) => ({ kind, place, epoch, attempt, id }) as const));
      return;
    }
  }
}

export function describeUndoFailure(why = "its step is not known"): string {
  return `it cannot be undone: ${why}`;
}

// Whoever carries out both commands undoes once by himself. Where the step was no command, at least the undo is known.
function referToCommands(
  { work }: StepNode,
  { ids, undo }: StepRecord,
  type: string,
): Partial<Pick<Extract<SagaEffect, { kind: "send" }>, "undoes" | "supersedes">> {
  if (work.kind === "send") return { undoes: { type: work.command.name, ids: [...ids] } };
  const earlier = undo?.ids.slice(undo.countsFrom?.ids ?? 0) ?? [];
  return earlier.length === 0 ? {} : { supersedes: { type, ids: earlier } };
}

export function completeStep(draft: Draft, place: string, record: StepRecord, result?: Json): void {
  const from = record.status;
  endEffort(record, draft.nowMs);
  record.status = "completed";
  record.outcome = "done";
  record.result = result;
  // Also if the definition of now has its pivot elsewhere: the instance must not turn back any more.
  if (record.pivot === true) draft.state.pivoted = true;
  draft.note({ event: "step_executed", place, from, to: "completed" });
}

/** For good. Its outcome must be set before. */
export function failStep(draft: Draft, place: string, record: StepRecord, error: string): void {
  const from = record.status;
  endEffort(record, draft.nowMs, error);
  record.status = "failed";
  draft.note({ event: "failed", place, from, to: "failed", note: error });
}

/** Stops waiting for a step. Whether it was done is unknown, unless it cannot have done anything. */
export function abandon(draft: Draft, place: string, step: StepNode | undefined, why: string): void {
  const record = draft.state.records[place];
  if (record?.status !== "in_progress") return;
  // No worker runs a step that the definition lacks, so no reply would ever settle it.
  const known = step !== undefined && kindMismatch(record, step) === undefined ? step.work.kind : undefined;
  switch (known) {
    case "send":
    case "child":
      record.outcome = "unknown";
      break;
    case "run":
      // It may be running at this moment: its worker is asked to stop it and reports how it ended.
      if (record.nextAtMs === undefined || record.nextAtMs <= draft.nowMs) {
        record.abandoned = why;
        return;
      }
      record.outcome = "unknown";
      break;
    case undefined:
      record.outcome = onlyWaits(record) ? "not_done" : "unknown";
      break;
    default:
      record.outcome = "not_done";
  }
  failStep(draft, place, record, why);
}

export function failUndo(draft: Draft, place: string, record: StepRecord, error: string): void {
  if (record.undo === undefined) return;
  endEffort(record.undo, draft.nowMs, error);
  record.undo.status = "failed";
  draft.note({ event: "failed", place, from: "compensating", to: "compensating", note: error });
}

export function completeUndo(draft: Draft, place: string, record: StepRecord): void {
  if (record.undo === undefined) return;
  endEffort(record.undo, draft.nowMs);
  record.undo.status = "done";
  const from = record.status;
  record.status = "compensated";
  draft.note({ event: "compensated", place, from, to: "compensated" });
}

function takeEarlyEvent(draft: Draft, place: string, record: StepRecord): void {
  const { early } = draft.state;
  const index = early.findIndex((event) => draft.stepsFor(event).has(stripRound(place)));
  const [event] = index === -1 ? [] : early.splice(index, 1);
  if (event !== undefined) completeStep(draft, place, record, event.data);
}

function checkDelay(delayMs: number): number {
  if (Number.isFinite(delayMs) && delayMs >= 0) return delayMs;
  throw new Error(`a delay of ${delayMs} ms`);
}

/** What was thrown, in words that can be kept. */
export function storableErrorText(thrown: unknown): string {
  return toStorableText(errorText(thrown));
}
