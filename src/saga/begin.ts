import { errorText } from "../errors/index.ts";
import type { Json } from "../message/index.ts";
import { stripRound, type StepNode } from "./definition.ts";
import type { SagaEffect } from "./decision.ts";
import { endEffort, newRecord, toStorableText, toUndoContext, type Draft } from "./draft.ts";
import { hasUndo, kindMismatch, onlyWaits, undoMismatch } from "./mismatch.ts";
import type { StepRecord } from "./state.ts";

/** Records that a step has begun, then makes its first attempt. */
export function beginStep(draft: Draft, stepPath: string, step: StepNode, unit: number): StepRecord {
  const record = newRecord(draft.nowMs, "in_progress", unit);
  draft.state.records[stepPath] = record;
  draft.note({ event: "step_executed", stepPath, from: "pending", to: "in_progress" });
  tryStep(draft, stepPath, step, record);
  return record;
}

/** Makes one attempt at a step: sends a command, makes local work due, or starts a wait. */
export function tryStep(draft: Draft, stepPath: string, step: StepNode, record: StepRecord): void {
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
        draft.effects.push({ kind: "send", stepPath, undo: false, epoch, command, data, id, ...supersedes });
        record.ids.push(id);
        return;
      }
      case "run":
      case "tx":
        record.nextAtMs = nowMs;
        record.dueAtMs = undefined; // the worker that runs the step enforces its timeout
        return;
      case "wait":
        return takeEarlyEvent(draft, stepPath, record);
      case "delay":
        record.dueAtMs = nowMs + checkDelay(work.delayMs(draft.stepContext()));
        return;
      case "child": {
        const input = work.input(draft.stepContext());
        const id = draft.ports.newId();
        record.ids.push(id);
        draft.effects.push({ kind: "start child", stepPath, id, definition: work.saga, input });
        return;
      }
    }
  } catch (thrown) {
    record.outcome = record.ids.length === 0 ? "not_done" : "unknown";
    failStep(draft, stepPath, record, `its own function failed: ${storableErrorText(thrown)}`);
  }
}

// Flags are only ever set: an earlier attempt may have run with an undo, or as the pivot, under another definition.
function noteDefinition(record: StepRecord, step: StepNode): void {
  record.kind ??= step.work.kind;
  if (hasUndo(step)) record.undoable = true;
  if (step.pivot) record.pivot = true;
}

/** Makes one attempt to undo a step. If the definition has no undo for it, the undo fails permanently. */
export function tryUndo(
  draft: Draft,
  stepPath: string,
  step: StepNode | undefined,
  record: StepRecord,
): void {
  const { undo } = record;
  if (undo === undefined) return;
  undo.nextAtMs = undefined;
  undo.dueAtMs = undefined;
  const why = undoMismatch(stepPath, step, record);
  if (why !== undefined || step === undefined || step.undo === null || step.undo.kind === "none") {
    return failUndo(draft, stepPath, record, describeUndoFailure(why));
  }
  undo.kind = step.undo.kind;
  switch (step.undo.kind) {
    case "send":
      try {
        const data = step.undo.data({ ...draft.stepContext(), ...toUndoContext(step, record) });
        const id = draft.ports.newId();
        const { command } = step.undo;
        const { epoch } = undo;
        const refers = referToCommands(step, record, command.name);
        draft.effects.push({ kind: "send", stepPath, undo: true, epoch, command, data, id, ...refers });
        undo.ids.push(id);
        undo.dueAtMs = draft.nowMs + (step.timeoutMs ?? 30_000);
      } catch (thrown) {
        failUndo(draft, stepPath, record, `its own function failed: ${storableErrorText(thrown)}`);
      }
      return;
    case "run":
    case "tx":
      undo.nextAtMs = draft.nowMs;
      return;
    case "child": {
      const { epoch, attempt } = undo;
      // Releases that stored no kind may have begun another kind of step here. Without a child there is no reply.
      if (record.ids.length === 0)
        return failUndo(draft, stepPath, record, describeUndoFailure("it has no child saga"));
      const kind = "revoke child";
      draft.effects.push(...record.ids.map((id) => ({ kind, stepPath, epoch, attempt, id }) as const));
      return;
    }
  }
}

export function describeUndoFailure(why = "its step is not known"): string {
  return `it cannot be undone: ${why}`;
}

// Lets the consumer of both commands undo only once. If the step was not a command, earlier undo commands are named.
function referToCommands(
  { work }: StepNode,
  { ids, undo }: StepRecord,
  type: string,
): Partial<Pick<Extract<SagaEffect, { kind: "send" }>, "undoes" | "supersedes">> {
  if (work.kind === "send") return { undoes: { type: work.command.name, ids: [...ids] } };
  const earlier = undo?.ids.slice(undo.countsFrom?.ids ?? 0) ?? [];
  return earlier.length === 0 ? {} : { supersedes: { type, ids: earlier } };
}

export function completeStep(draft: Draft, stepPath: string, record: StepRecord, result?: Json): void {
  const from = record.status;
  endEffort(record, draft.nowMs);
  record.status = "completed";
  record.outcome = "done";
  record.result = result;
  // Even if the current definition has its pivot elsewhere, this instance must not be compensated any more.
  if (record.pivot === true) draft.state.pivoted = true;
  draft.note({ event: "step_executed", stepPath, from, to: "completed" });
}

/** Fails a step permanently. The caller sets `record.outcome` first. */
export function failStep(draft: Draft, stepPath: string, record: StepRecord, error: string): void {
  const from = record.status;
  endEffort(record, draft.nowMs, error);
  record.status = "failed";
  draft.note({ event: "failed", stepPath, from, to: "failed", note: error });
}

/** Stops waiting for a step. Its outcome becomes unknown, unless it cannot have had an effect. */
export function abandon(draft: Draft, stepPath: string, step: StepNode | undefined, why: string): void {
  const record = draft.state.records[stepPath];
  if (record?.status !== "in_progress") return;
  // No worker runs a step that the definition lacks, so no reply would ever settle it.
  const known = step !== undefined && kindMismatch(record, step) === undefined ? step.work.kind : undefined;
  switch (known) {
    case "send":
    case "child":
      record.outcome = "unknown";
      break;
    case "run":
      // It may be running now: its worker is asked to stop it and reports the outcome.
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
  failStep(draft, stepPath, record, why);
}

export function failUndo(draft: Draft, stepPath: string, record: StepRecord, error: string): void {
  if (record.undo === undefined) return;
  endEffort(record.undo, draft.nowMs, error);
  record.undo.status = "failed";
  draft.note({ event: "failed", stepPath, from: "compensating", to: "compensating", note: error });
}

export function completeUndo(draft: Draft, stepPath: string, record: StepRecord): void {
  if (record.undo === undefined) return;
  endEffort(record.undo, draft.nowMs);
  record.undo.status = "done";
  const from = record.status;
  record.status = "compensated";
  draft.note({ event: "compensated", stepPath, from, to: "compensated" });
}

function takeEarlyEvent(draft: Draft, stepPath: string, record: StepRecord): void {
  const { early } = draft.state;
  const index = early.findIndex((event) => draft.stepsFor(event).has(stripRound(stepPath)));
  const [event] = index === -1 ? [] : early.splice(index, 1);
  if (event !== undefined) completeStep(draft, stepPath, record, event.data);
}

function checkDelay(delayMs: number): number {
  if (Number.isFinite(delayMs) && delayMs >= 0) return delayMs;
  throw new Error(`a delay of ${delayMs} ms`);
}

/** The text of a thrown value, shortened and cleaned so that PostgreSQL can store it. */
export function storableErrorText(thrown: unknown): string {
  return toStorableText(errorText(thrown));
}
