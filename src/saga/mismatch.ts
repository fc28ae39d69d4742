import { nodeAt, stripRound, type SagaDefinition, type StepNode } from "./definition.ts";
import type { SagaState, StepRecord } from "./state.ts";

// Records are stored under step names. If a version's steps change while instances are unfinished, a record may have no
// step, or a step of another kind. Skipping the record could run the step twice under its new name, or leave it without
// an undo. The instance is parked instead, and the incident names the record.

/**
 * Finds the step paths of a state that do not fit the definition, each with the reason. Undefined if all of them fit.
 */
export function findMismatches(
  definition: SagaDefinition,
  { records, choices, rounds }: SagaState,
): Record<string, string> | undefined {
  let found: Record<string, string> | undefined;
  const check = (stepPath: string, why: string | undefined): void => {
    if (why !== undefined) (found ??= {})[stepPath] = why;
  };
  for (const stepPath of Object.keys(records)) {
    const record = records[stepPath];
    if (record !== undefined) check(stepPath, recordMismatch(definition, stepPath, record));
  }
  // A record at the path of a branch or a repetition is an operator's decision about it.
  for (const stepPath of Object.keys(choices)) {
    if (records[stepPath] === undefined)
      check(stepPath, choiceMismatch(definition, stepPath, choices[stepPath] ?? null));
  }
  for (const stepPath of Object.keys(rounds)) {
    if (records[stepPath] !== undefined || rounds[stepPath]?.over === true) continue;
    if (nodeAt(definition, stepPath)?.kind !== "repeat") {
      check(stepPath, `the definition has no repetition "${stripRound(stepPath)}"`);
    }
  }
  return found;
}

/** Why this definition cannot continue a record. Undefined if it can, or if the record has no effect. */
export function recordMismatch(
  definition: SagaDefinition,
  stepPath: string,
  record: StepRecord,
): string | undefined {
  if (!hasEffect(record)) return undefined;
  const node = nodeAt(definition, stepPath);
  if (node?.kind === "step") return record.status === "in_progress" ? kindMismatch(record, node) : undefined;
  const isChoice = node?.kind === "branch" || node?.kind === "repeat";
  return isChoice && isOfChoice(record) ? undefined : missingStep(stepPath);
}

function missingStep(stepPath: string): string {
  return `the definition has no step "${stripRound(stepPath)}"`;
}

/** Why this definition cannot undo a step. Undefined if it can. */
export function undoMismatch(
  stepPath: string,
  step: StepNode | undefined,
  record: StepRecord,
): string | undefined {
  if (step === undefined) return missingStep(stepPath);
  if (step.undo === null || step.undo.kind === "none") return "the definition has no undo for it";
  // An undo in flight may have happened already. An undo of another kind cannot detect that and would undo twice.
  const { status, kind = step.undo.kind } = record.undo ?? {};
  if (status === "in_progress" && kind !== step.undo.kind) {
    return `its undo began as one of the kind ${kind}, and is of the kind ${step.undo.kind} now`;
  }
  // The undo of a command needs the command's id, and the undo of a child needs the child's id.
  return kindChange(record, step);
}

/** Describes how the kind of a step has changed since the record began. Undefined if it has not. */
export function kindChange({ kind }: StepRecord, { work }: StepNode): string | undefined {
  if (kind === undefined || kind === work.kind) return undefined;
  return `it began as a step of the kind ${kind}, and the step is of the kind ${work.kind} now`;
}

export function hasUndo({ undo }: StepNode): boolean {
  return undo !== null && undo.kind !== "none";
}

/** Whether a step is in flight, done, or may be done. */
export function hasEffect({ status, outcome }: StepRecord): boolean {
  if (status === "in_progress") return true;
  if (status === "skipped" || status === "compensated") return false;
  return outcome === "done" || outcome === "unknown";
}

/** Whether the definition must be able to continue or undo a record. False with an incident: an operator decides. */
export function needsDefinition({ records, mismatches }: SagaState, stepPath: string): boolean {
  const record = records[stepPath];
  if (record === undefined || mismatches?.[stepPath] !== undefined || record.undo?.status === "failed")
    return false;
  return hasEffect(record);
}

/** Whether a step in flight only waits for an event or a time, and so has no effect. */
export function onlyWaits({ ids, nextAtMs }: StepRecord): boolean {
  return ids.length === 0 && nextAtMs === undefined;
}

/**
 * Why a record in flight cannot belong to this step, because the kinds differ. Undefined if they match. A record without
 * a kind is judged by what it waits for.
 */
export function kindMismatch(record: StepRecord, { work }: StepNode): string | undefined {
  const [doing, kinds] =
    record.ids.length > 0
      ? ["a reply is awaited", ["send", "child"]]
      : onlyWaits(record)
        ? ["it waits", ["wait", "delay"]]
        : ["it runs in a worker", ["run", "tx"]];
  const fits = record.kind === undefined ? kinds.includes(work.kind) : record.kind === work.kind;
  return fits ? undefined : `${doing}, and the step is of the kind ${work.kind} now`;
}

function isOfChoice({ status, ids, undo, kind }: StepRecord): boolean {
  return kind === undefined && status !== "in_progress" && ids.length === 0 && undo === undefined;
}

function choiceMismatch(
  definition: SagaDefinition,
  stepPath: string,
  way: string | null,
): string | undefined {
  const node = nodeAt(definition, stepPath);
  if (way === null || node?.kind === "group") return undefined;
  if (node?.kind !== "branch") return `the definition has no choice "${stripRound(stepPath)}"`;
  return Object.hasOwn(node.ways, way)
    ? undefined
    : `the choice "${stripRound(stepPath)}" has no way "${way}"`;
}
