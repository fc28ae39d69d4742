import type { Json } from "../message/index.ts";
import { decide } from "./decide.ts";
import type { Decision } from "./decision.ts";
import { type SagaDefinition, stepAt } from "./definition.ts";
import type { SagaInput } from "./input.ts";
import { findMismatches, hasEffect, undoMismatch } from "./mismatch.ts";
import { replayPorts, type ReplayValues } from "./replay-values.ts";
import {
  type Effort,
  hasEnded,
  newState,
  type SagaState,
  type SagaStatus,
  type Snapshot,
  type StepRecord,
} from "./state.ts";
import { listHistoryLines } from "./transition.ts";

/** One transition in the stored history. */
export interface RecordedTurn {
  /** The version of the instance after the transition. The first is 1. */
  readonly version: number;
  readonly atMs: number;
  readonly input: SagaInput;
  readonly drawn: ReplayValues | null;
  readonly lines: readonly RecordedLine[];
}

export interface RecordedLine {
  readonly event: string;
  readonly step: string | null;
  readonly from: string | null;
  readonly to: string | null;
}

export interface RecordedSaga {
  readonly id: string;
  readonly input: Json;
  readonly parent: Snapshot["parent"];
  readonly status: SagaStatus;
  readonly state: SagaState;
  readonly version: number;
  readonly turns: readonly RecordedTurn[];
}

/** The result of replaying a recorded instance on a definition. */
export type Replayed =
  /** Every transition is equal. */
  | { readonly verdict: "same" }
  /** The replay differs from this transition on. */
  | {
      readonly verdict: "diverges";
      readonly version: number;
      readonly atMs: number | null;
      readonly step: string | null;
      readonly why: string;
    }
  /** The instance could not continue with the definition. */
  | { readonly verdict: "stuck"; readonly step: string | null; readonly why: string };

/**
 * Replays the history of an instance on a definition with the recorded clock, ids and random numbers, and reports the
 * first difference. Runs no steps, only the functions that build data and make choices.
 */
export function replay(definition: SagaDefinition | undefined, recorded: RecordedSaga): Replayed {
  if (definition === undefined) {
    return { verdict: "stuck", step: null, why: "this version of the saga is not registered" };
  }
  const missing = hasEnded(recorded.status) ? undefined : lostStep(definition, recorded.state);
  if (missing !== undefined) return { verdict: "stuck", ...missing };
  return isComplete(recorded) ? replayTurns(definition, recorded) : replayNextStep(definition, recorded);
}

/** The first step that the definition cannot continue, or could not undo, and why. */
function lostStep(
  definition: SagaDefinition,
  state: SagaState,
): { readonly step: string; readonly why: string } | undefined {
  const undoes = (stepPath: string, record: StepRecord): string | undefined =>
    undoMismatch(stepPath, stepAt(definition, stepPath), record);
  const records = Object.entries(state.records);
  for (const [stepPath, record] of records) {
    if (record.undo?.status !== "in_progress" && record.undo?.status !== "failed") continue;
    const why = undoes(stepPath, record);
    if (why !== undefined) return { step: stepPath, why: `it is being undone, and ${why}` };
  }
  const [first] = Object.entries(findMismatches(definition, state) ?? {});
  if (first !== undefined) return { step: first[0], why: first[1] };
  if (state.pivoted) return undefined;
  for (const [stepPath, record] of records) {
    if (record.undoable !== true || record.undo !== undefined || !hasEffect(record)) continue;
    const why = undoes(stepPath, record);
    if (why !== undefined) return { step: stepPath, why: `it could not be undone: ${why}` };
  }
  return undefined;
}

function isComplete({ turns, version }: RecordedSaga): boolean {
  return turns.length === version && turns.every((turn, index) => turn.version === index + 1);
}

function replayTurns(definition: SagaDefinition, recorded: RecordedSaga): Replayed {
  const { id, input, parent } = recorded;
  let snapshot: Snapshot = { id, input, parent, status: "started", state: newState() };
  for (const turn of recorded.turns) {
    const { ports, idsTooMany } = replayPorts(turn.drawn ?? { nowMs: turn.atMs, ids: [], random: [] });
    const decision = decideAll(definition, snapshot, turn, ports);
    const difference = turnDifference(decision, turn) ?? idsDifference(turn, idsTooMany());
    if (difference !== undefined) {
      return { verdict: "diverges", version: turn.version, atMs: turn.atMs, ...difference };
    }
    snapshot = { ...snapshot, status: decision.status, state: decision.state };
  }
  const atMs = recorded.turns.at(-1)?.atMs ?? null;
  const difference = firstDifference(recorded.state, snapshot.state);
  if (difference === undefined) return { verdict: "same" };
  return { verdict: "diverges", version: recorded.version, atMs, ...difference };
}

function decideAll(
  definition: SagaDefinition,
  snapshot: Snapshot,
  { input, drawn }: RecordedTurn,
  ports: Parameters<typeof decide>[3],
): Decision {
  let decision = decide(definition, snapshot, input, ports);
  for (const next of drawn?.followUps ?? []) {
    const { status, state } = decision;
    const followed = decide(definition, { ...snapshot, status, state }, next, ports);
    decision = { ...followed, changes: [...decision.changes, ...followed.changes] };
  }
  return decision;
}

type Difference = { readonly step: string | null; readonly why: string };

function turnDifference(
  { ignored, changes }: Decision,
  { lines, input }: RecordedTurn,
): Difference | undefined {
  if (ignored !== undefined) return { step: null, why: `"${input.kind}" would not be used: ${ignored}` };
  const now = listHistoryLines(changes).map(({ event, stepPath, from, to }) => ({
    event,
    step: stepPath ?? null,
    from: from ?? null,
    to: to ?? null,
  }));
  for (let index = 0; index < Math.max(now.length, lines.length); index += 1) {
    const [then, here] = [lines[index], now[index]];
    if (then !== undefined && here !== undefined && describeLine(then) === describeLine(here)) continue;
    return {
      step: then?.step ?? here?.step ?? null,
      why: `then: ${describeLine(then)}; now: ${describeLine(here)}`,
    };
  }
  return undefined;
}

function idsDifference({ input }: RecordedTurn, tooMany: number): Difference | undefined {
  if (tooMany === 0) return undefined;
  const how = tooMany > 0 ? `${tooMany} more` : `${-tooMany} fewer`;
  return { step: null, why: `"${input.kind}" would send ${how} commands` };
}

function describeLine(line: RecordedLine | undefined): string {
  if (line === undefined) return "nothing";
  const { event, step, from, to } = line;
  return [event, step, from === null && to === null ? null : `${from ?? ""} → ${to ?? ""}`]
    .filter((part) => part !== null)
    .join(" ");
}

// With an incomplete history only the next move can be checked: a tick must not begin anything new.
function replayNextStep(definition: SagaDefinition, recorded: RecordedSaga): Replayed {
  if (hasEnded(recorded.status)) return { verdict: "same" };
  const last = recorded.turns.at(-1);
  const atMs = last?.atMs ?? null;
  const { ports } = replayPorts({ nowMs: last?.drawn?.nowMs ?? atMs ?? 0, ids: [], random: [] });
  const { ignored, changes } = decide(definition, recorded, { kind: "tick" }, ports);
  const [first] = changes;
  if (ignored !== undefined || first === undefined) return { verdict: "same" };
  const now = {
    event: first.event,
    step: first.stepPath ?? null,
    from: first.from ?? null,
    to: first.to ?? null,
  };
  return {
    verdict: "diverges",
    version: recorded.version,
    atMs,
    step: now.step,
    why: `nothing was to happen then; now: ${describeLine(now)}`,
  };
}

/** The first difference in meaning between two states. Times, ids and error texts are not compared. */
function firstDifference(
  then: SagaState,
  now: SagaState,
): { readonly step: string | null; readonly why: string } | undefined {
  const stepPaths = new Set([...Object.keys(then.records), ...Object.keys(now.records)]);
  for (const stepPath of stepPaths) {
    const [before, after] = [then.records[stepPath], now.records[stepPath]];
    const why =
      findDifference(summarizeRecord(before), summarizeRecord(after)) ??
      (before?.kind === undefined ? undefined : findDifference(definitionOf(before), definitionOf(after)));
    if (why !== undefined) return { step: stepPath, why };
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

// Definition details stored when the step began. Records of earlier releases lack them.
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

// Sorts object keys, so that equal values have equal text.
function canonical(value: unknown): string {
  if (value === undefined) return "nothing";
  return JSON.stringify(value, (_, inner: unknown) =>
    typeof inner === "object" && inner !== null && !Array.isArray(inner)
      ? Object.fromEntries(Object.entries(inner).sort(([a], [b]) => (a < b ? -1 : 1)))
      : inner,
  );
}
