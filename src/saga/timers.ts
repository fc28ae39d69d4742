import { stepAt, type SagaDefinition, type StepNode } from "./definition.ts";
import { kindMismatch, undoMismatch } from "./mismatch.ts";
import type { Effort, SagaState, StepRecord } from "./state.ts";

/** A local step or undo that is due: `run` runs outside the transaction, `tx` inside it. */
export interface LocalWork {
  readonly stepPath: string;
  readonly undo: boolean;
  readonly kind: "run" | "tx";
  readonly epoch: number;
  readonly attempt: number;
  readonly definition: SagaDefinition;
  readonly step: StepNode;
  readonly record: StepRecord;
}

/** Local steps and undos that are due. */
export function listLocalWork(definition: SagaDefinition, state: SagaState, nowMs: number): LocalWork[] {
  const due: LocalWork[] = [];
  for (const stepPath of Object.keys(state.records)) {
    const record = state.records[stepPath];
    if (record === undefined || !isInProgress(record)) continue;
    const step = stepAt(definition, stepPath);
    if (step === undefined || !canDo(stepPath, record, step)) continue;
    const work = dueEffort(record, step);
    if (work?.effort.nextAtMs === undefined || work.effort.nextAtMs > nowMs) continue;
    const { undo, kind, effort } = work;
    due.push({
      stepPath,
      undo,
      kind,
      epoch: effort.epoch,
      attempt: effort.attempt,
      definition,
      step,
      record,
    });
  }
  return due;
}

/** Whether the definition still has the step or undo in flight. If not, the next decision opens an incident. */
function canDo(stepPath: string, record: StepRecord, step: StepNode): boolean {
  if (record.status === "in_progress") return kindMismatch(record, step) === undefined;
  return undoMismatch(stepPath, step, record) === undefined;
}

function isInProgress({ status, undo }: StepRecord): boolean {
  return status === "in_progress" || undo?.status === "in_progress";
}

function dueEffort(
  record: StepRecord,
  step: StepNode,
): { readonly undo: boolean; readonly kind: "run" | "tx"; readonly effort: Effort } | undefined {
  if (record.status === "in_progress") {
    const { kind } = step.work;
    return isLocal(kind) ? { undo: false, kind, effort: record } : undefined;
  }
  if (record.undo?.status !== "in_progress") return undefined;
  const kind = step.undo?.kind;
  return isLocal(kind) ? { undo: true, kind, effort: record.undo } : undefined;
}

/** When the earliest timer of the instance is due, in milliseconds of the database clock. Null if it has none. */
export function nextDueMs({ records, deadlineAtMs, mismatches }: SagaState, ended: boolean): number | null {
  if (ended) return null;
  let earliest = deadlineAtMs ?? Infinity;
  for (const [stepPath, record] of Object.entries(records)) {
    if (!isInProgress(record) || mismatches?.[stepPath] !== undefined) continue;
    const { nextAtMs, dueAtMs } = record.status === "in_progress" ? record : (record.undo ?? record);
    earliest = Math.min(earliest, nextAtMs ?? Infinity, dueAtMs ?? Infinity);
  }
  return earliest === Infinity ? null : earliest;
}

/** Whether a timer is due that needs no local work: a timeout, a deadline, or a command to send again. */
export function clockIsDue(definition: SagaDefinition, state: SagaState, nowMs: number): boolean {
  const { records, deadlineAtMs, mismatches } = state;
  if (deadlineAtMs !== undefined && deadlineAtMs <= nowMs) return true;
  const isOver = ({ nextAtMs, dueAtMs }: Effort, local: boolean): boolean =>
    (dueAtMs !== undefined && dueAtMs <= nowMs) || (!local && nextAtMs !== undefined && nextAtMs <= nowMs);
  return Object.keys(records).some((stepPath) => {
    const record = records[stepPath];
    if (record === undefined || !isInProgress(record) || mismatches?.[stepPath] !== undefined) return false;
    const step = stepAt(definition, stepPath);
    const fits = step !== undefined && canDo(stepPath, record, step);
    if (record.status === "in_progress") return isOver(record, fits && isLocal(step.work.kind));
    return record.undo?.status === "in_progress" && isOver(record.undo, fits && isLocal(step.undo?.kind));
  });
}

function isLocal(kind: string | undefined): kind is "run" | "tx" {
  return kind === "run" || kind === "tx";
}

/** Describes for operators what an instance waits for: the steps in flight, and since when. */
export function waitingFor(
  definition: SagaDefinition | undefined,
  state: SagaState,
): { readonly step: string; readonly what: string; readonly sinceMs: number } | null {
  const [mismatch, ...others] = Object.keys(state.mismatches ?? {});
  if (mismatch !== undefined) {
    const sinceMs = Math.max(...Object.values(state.records).map(({ startedAtMs }) => startedAtMs));
    return { step: mismatch, what: `step: ${[mismatch, ...others].join(", ")}`.slice(0, 500), sinceMs };
  }
  const open = openEfforts(state);
  const first = open[0];
  if (first === undefined) return null;
  const step = definition === undefined ? undefined : stepAt(definition, first.stepPath);
  const what = open.map(({ stepPath, undo }) => (undo ? `undo of ${stepPath}` : stepPath)).join(", ");
  const kind = (first.undo ? step?.undo?.kind : step?.work.kind) ?? "step";
  return { step: first.stepPath, what: `${kind}: ${what}`.slice(0, 500), sinceMs: first.effort.startedAtMs };
}

interface OpenEffort {
  readonly stepPath: string;
  readonly record: StepRecord;
  readonly effort: Effort;
  readonly undo: boolean;
}

/** Steps and undos that are in flight or have failed, latest first. */
function openEfforts({ records, direction }: SagaState): readonly OpenEffort[] {
  const open: OpenEffort[] = [];
  for (const stepPath of Object.keys(records)) {
    const record = records[stepPath];
    if (record === undefined) continue;
    const { status, undo } = record;
    if (status === "in_progress") open.push({ stepPath, record, effort: record, undo: false });
    else if (undo?.status === "in_progress" || undo?.status === "failed") {
      open.push({ stepPath, record, effort: undo, undo: true });
    } else if (status === "failed" && direction === "forward") {
      open.push({ stepPath, record, effort: record, undo: false });
    }
  }
  return open.length > 1 ? open.sort((a, b) => b.record.unit - a.record.unit) : open;
}
