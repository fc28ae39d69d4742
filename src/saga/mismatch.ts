import { nodeAt, stripRound, type SagaDefinition, type StepNode } from "./definition.ts";
import type { SagaState, StepRecord } from "./state.ts";

// An instance stores what happened under the names of its steps. If the steps of a version change while instances of it
// are unfinished, a record may have no step, or one of another kind. Such a record is never skipped: it would be done
// again under its new name, or not be undone. The instance is parked, and the incident names the record.

/**
 * Finds what keeps an instance from going forward with a definition: places of the state, each with the reason.
 * Undefined when everything fits.
 */
export function findMismatches(
  definition: SagaDefinition,
  { records, choices, rounds }: SagaState,
): Record<string, string> | undefined {
  let found: Record<string, string> | undefined;
  const check = (place: string, why: string | undefined): void => {
    if (why !== undefined) (found ??= {})[place] = why;
  };
  for (const place of Object.keys(records)) {
    const record = records[place];
    if (record !== undefined) check(place, recordMismatch(definition, place, record));
  }
  // A record at the place of a choice or a repetition is a person's decision about it.
  for (const place of Object.keys(choices)) {
    if (records[place] === undefined) check(place, choiceMismatch(definition, place, choices[place] ?? null));
  }
  for (const place of Object.keys(rounds)) {
    if (records[place] !== undefined || rounds[place]?.over === true) continue;
    if (nodeAt(definition, place)?.kind !== "repeat") {
      check(place, `the definition has no repetition "${stripRound(place)}"`);
    }
  }
  return found;
}

/** Why a record cannot be continued with this definition; undefined when it can, or when it does not matter. */
export function recordMismatch(
  definition: SagaDefinition,
  place: string,
  record: StepRecord,
): string | undefined {
  if (!hasEffect(record)) return undefined;
  const node = nodeAt(definition, place);
  if (node?.kind === "step") return record.status === "in_progress" ? kindMismatch(record, node) : undefined;
  const isChoice = node?.kind === "branch" || node?.kind === "repeat";
  return isChoice && isOfChoice(record) ? undefined : missingStep(place);
}

function missingStep(place: string): string {
  return `the definition has no step "${stripRound(place)}"`;
}

/** Why a step cannot be undone with this definition; undefined when it can. */
export function undoMismatch(
  place: string,
  step: StepNode | undefined,
  record: StepRecord,
): string | undefined {
  if (step === undefined) return missingStep(place);
  if (step.undo === null || step.undo.kind === "none") return "the definition has no undo for it";
  // An undo under way may have happened. One of another kind would not recognise it, and undo the step twice.
  const { status, kind = step.undo.kind } = record.undo ?? {};
  if (status === "in_progress" && kind !== step.undo.kind) {
    return `its undo began as one of the kind ${kind}, and is of the kind ${step.undo.kind} now`;
  }
  // The undo of a command refers to its id, and that of a child to the child: neither undoes a step of another kind.
  return kindChange(record, step);
}

/** How the kind of a step differs from the one that a record began with; undefined when it does not. */
export function kindChange({ kind }: StepRecord, { work }: StepNode): string | undefined {
  if (kind === undefined || kind === work.kind) return undefined;
  return `it began as a step of the kind ${kind}, and the step is of the kind ${work.kind} now`;
}

export function hasUndo({ undo }: StepNode): boolean {
  return undo !== null && undo.kind !== "none";
}

/** Whether a record is under way, done, or perhaps done. */
export function hasEffect({ status, outcome }: StepRecord): boolean {
  if (status === "in_progress") return true;
  if (status === "skipped" || status === "compensated") return false;
  return outcome === "done" || outcome === "unknown";
}

/** Whether a definition must be able to continue or undo a record. If it has an incident, a person decides about it. */
export function needsDefinition({ records, mismatches }: SagaState, place: string): boolean {
  const record = records[place];
  if (record === undefined || mismatches?.[place] !== undefined || record.undo?.status === "failed")
    return false;
  return hasEffect(record);
}

/** Whether a record under way only waits, for an event or a time, so that it cannot have done anything. */
export function onlyWaits({ ids, nextAtMs }: StepRecord): boolean {
  return ids.length === 0 && nextAtMs === undefined;
}

/**
 * Why a record under way was begun by a step of another kind; undefined when the step may have begun it. A record
 * without a kind is judged by what it waits for.
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

function choiceMismatch(definition: SagaDefinition, place: string, way: string | null): string | undefined {
  const node = nodeAt(definition, place);
  if (way === null || node?.kind === "group") return undefined;
  if (node?.kind !== "branch") return `the definition has no choice "${stripRound(place)}"`;
  return Object.hasOwn(node.ways, way) ? undefined : `the choice "${stripRound(place)}" has no way "${way}"`;
}
