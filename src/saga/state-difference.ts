import type { Effort, SagaState, StepRecord } from "./state.ts";

/** Where two states differ in what they mean: not in times, ids or the wording of an error. */
export function firstDifference(
  then: SagaState,
  now: SagaState,
): { readonly step: string | null; readonly why: string } | undefined {
  const places = new Set([...Object.keys(then.records), ...Object.keys(now.records)]);
  for (const place of places) {
    const [before, after] = [then.records[place], now.records[place]];
    const why =
      findDifference(summarizeRecord(before), summarizeRecord(after)) ??
      (before?.kind === undefined ? undefined : findDifference(definitionOf(before), definitionOf(after)));
    if (why !== undefined) return { step: place, why };
  }
  const why = findDifference(summarizeState(then), summarizeState(now));
  return why === undefined ? undefined : { step: null, why };
}

function summarizeRecord(record: StepRecord | undefined): Record<string, unknown> {
  if (record === undefined) return { status: "not begun" };
  const { status, outcome, unit, result, abandoned, undo } = record;
  return {
    status,
    outcome,
    unit,
    result,
    abandoned: abandoned !== undefined,
    ...summarizeEffort("", record),
    ...(undo === undefined ? {} : { undo: undo.status, ...summarizeEffort("undo ", undo) }),
  };
}

// What the definition said when the step began. Records of earlier releases lack it.
function definitionOf(record: StepRecord | undefined): Record<string, unknown> {
  return { kind: record?.kind, undoable: record?.undoable, pivot: record?.pivot };
}

function summarizeEffort(name: string, { epoch, attempt, ids }: Effort): Record<string, unknown> {
  return { [`${name}epoch`]: epoch, [`${name}attempt`]: attempt, [`${name}commands`]: ids.length };
}

function summarizeState(state: SagaState): Record<string, unknown> {
  const { direction, pivoted, choices, rounds, early, mismatches } = state;
  return { direction, pivoted, choices, rounds, mismatches, early: early.map(({ id }) => id) };
}

function findDifference(then: Record<string, unknown>, now: Record<string, unknown>): string | undefined {
  for (const name of new Set([...Object.keys(then), ...Object.keys(now)])) {
    const [before, after] = [canonical(then[name]), canonical(now[name])];
    if (before !== after) return `${name} was ${before.slice(0, 200)}; now: ${after.slice(0, 200)}`;
  }
  return undefined;
}

// Keys in one order, so that equal things are equal texts.
function canonical(value: unknown): string {
  if (value === undefined) return "nothing";
  return JSON.stringify(value, (_, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  );
}
