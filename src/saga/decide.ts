import { completeStep } from "./begin.ts";
import { goBackward } from "./backward.ts";
import { stripRound, stepAt, type SagaDefinition } from "./definition.ts";
import type { Decision, DecisionPorts } from "./decision.ts";
import { Draft } from "./draft.ts";
import { hasEnded, hasLostRace, type SagaState, type SagaStatus, type Snapshot } from "./state.ts";
import { goForward } from "./forward.ts";
import type { SagaInput } from "./input.ts";
import { findMismatches, kindMismatch } from "./mismatch.ts";
import {
  applyOperatorDecision,
  findStuckSteps,
  listFailedCommands,
  pivotMayHaveHappened,
  startCompensation,
  whyNotCompensate,
} from "./operate.ts";
import {
  applyDueTimers,
  settleReply,
  settleStep,
  settleUndo,
  TOO_EARLY,
  type IgnoreReason,
} from "./settle-step.ts";

/** Limit of early events per instance. More are taken for a mistake of the sender and ignored. */
const MAX_EARLY_EVENTS = 1_000;
/** After this many workers died while running a step, the step is a suspect and fails. */
const MAX_CLAIMS = 5;

/**
 * The saga engine: takes a state and an input, returns the next state and its effects. It is pure, so it can be tested
 * without a database, replayed over a recorded history, and checked for termination.
 */
export function decide(
  definition: SagaDefinition,
  snapshot: Snapshot,
  input: SagaInput,
  ports: DecisionPorts,
): Decision {
  const draft = new Draft(definition, snapshot, ports);
  const ignored = applyInput(draft, input);
  if (ignored !== undefined) {
    return { status: snapshot.status, state: snapshot.state, effects: [], changes: [], ignored };
  }
  advance(draft);
  const { status, state, effects, changes } = draft;
  if (input.kind === "tick" && effects.length === 0 && changes.length === 0) {
    return { status, state, effects, changes, ignored: "nothing is due" };
  }
  return { status, state, effects, changes };
}

function applyInput(draft: Draft, input: SagaInput): IgnoreReason {
  const { state, status, nowMs } = draft;
  switch (input.kind) {
    case "start":
      return start(draft);
    case "tick":
      if (hasEnded(status)) return "it has ended";
      failSuspects(draft, input.claims ?? 0);
      applyDueTimers(draft);
      if (state.deadlineAtMs !== undefined && state.deadlineAtMs <= nowMs) applyDeadline(draft);
      return undefined;
    case "reply":
      return settleReply(draft, input.requestId, input.outcome);
    case "worked":
      return settleWork(draft, input);
    case "event":
      return receiveEvent(draft, input);
    case "child":
      return settleChild(draft, input);
    case "revoke":
      return revoke(draft);
    case "compensate":
    case "cancel": {
      const refused = whyNotCompensate(draft, input.kind === "compensate");
      if (refused === undefined)
        startCompensation(draft, `${input.kind} by ${input.by.actor}: ${input.by.reason}`);
      return refused;
    }
    case "retry":
    case "skip":
    case "settle":
      return applyOperatorDecision(draft, input);
  }
}

function start(draft: Draft): IgnoreReason {
  const { definition, state, nowMs } = draft;
  if (state.units > 0) return "it has started before";
  if (definition.deadlineMs !== null) state.deadlineAtMs = nowMs + definition.deadlineMs;
  return undefined;
}

function settleWork(draft: Draft, input: Extract<SagaInput, { kind: "worked" }>): IgnoreReason {
  const record = draft.state.records[input.stepPath];
  const effort = input.undo ? record?.undo : record;
  if (effort === undefined) return "this step has not begun";
  if (input.undo && input.epoch < (record?.undo?.countsFrom?.epoch ?? 0)) return TOO_EARLY;
  const late = effort.epoch !== input.epoch || effort.attempt !== input.attempt;
  if (late && input.outcome.kind !== "done") return "a newer try has taken its place";
  return input.undo
    ? settleUndo(draft, input.stepPath, input.outcome)
    : settleStep(draft, input.stepPath, input.outcome);
}

// If a worker dies mid-step, the outcome is unknown. A step that keeps killing workers is failed.
function failSuspects(draft: Draft, claims: number): void {
  if (claims < MAX_CLAIMS) return;
  const outcome = { kind: "unknown", error: `${claims} workers died while running it` } as const;
  for (const [stepPath, record] of Object.entries(draft.state.records)) {
    const step = stepAt(draft.definition, stepPath);
    const due = (atMs: number | undefined): boolean => atMs !== undefined && atMs <= draft.nowMs;
    if (record.status === "in_progress" && step?.work.kind === "run" && due(record.nextAtMs)) {
      record.attempt = Math.max(record.attempt, step.retry.maxAttempts);
      settleStep(draft, stepPath, outcome);
    } else if (
      record.undo?.status === "in_progress" &&
      step?.undo?.kind === "run" &&
      due(record.undo.nextAtMs)
    ) {
      record.undo.attempt = Math.max(record.undo.attempt, step.undoRetry.maxAttempts);
      settleUndo(draft, stepPath, outcome);
    }
  }
}

function applyDeadline(draft: Draft): void {
  draft.state.deadlineAtMs = undefined;
  if (whyNotCompensate(draft, false) === undefined) startCompensation(draft, "its deadline has passed");
  else draft.note({ event: "noted", note: "its deadline has passed" });
}

// Two steps may wait for one event by different keys. The event is only for the steps whose key names this instance.
function receiveEvent(draft: Draft, { id, type, data }: Extract<SagaInput, { kind: "event" }>): IgnoreReason {
  const { state, status } = draft;
  if (hasEnded(status)) return "it has ended";
  const waitingSteps = draft.stepsFor({ type, data });
  const waiting = Object.entries(state.records).find(([stepPath, record]) => {
    if (record.status !== "in_progress" || !waitingSteps.has(stripRound(stepPath))) return false;
    const step = stepAt(draft.definition, stepPath);
    return step !== undefined && kindMismatch(record, step) === undefined;
  });
  if (waiting !== undefined) {
    completeStep(draft, waiting[0], waiting[1], data);
    return undefined;
  }
  if (state.direction === "backward") return "it is being compensated";
  if (waitingSteps.size === 0) return "no step of it waits for that";
  if (state.early.some((event) => event.id === id)) return "it is known already";
  if (state.early.length >= MAX_EARLY_EVENTS) return `${MAX_EARLY_EVENTS} events wait for it already`;
  state.early.push({ id, type, data });
  draft.note({ event: "noted", note: `"${type}" came before it was waited for` });
  return undefined;
}

function settleChild(
  draft: Draft,
  { childId, end, results }: Extract<SagaInput, { kind: "child" }>,
): IgnoreReason {
  const found = Object.entries(draft.state.records).find(([, { ids }]) => ids.includes(childId));
  if (found === undefined) return "it has no such child";
  const [stepPath, record] = found;
  const revoked = record.undo !== undefined && record.undo.status !== "done";
  switch (end) {
    case "completed":
      return settleStep(draft, stepPath, { kind: "done", result: results });
    case "compensated":
      return revoked
        ? settleUndo(draft, stepPath, { kind: "done" })
        : settleStep(draft, stepPath, { kind: "refused", error: "the child saga was compensated" });
    case "past pivot":
      return settleUndo(draft, stepPath, { kind: "refused", error: "the child saga is past its pivot" });
  }
}

function revoke(draft: Draft): IgnoreReason {
  const { parent } = draft.snapshot;
  const { state, status } = draft;
  if (parent === null) return "it has no parent";
  draft.note({ event: "noted", note: "its parent takes it back" });
  if (status === "compensated") {
    draft.effects.push({ kind: "tell parent", parentId: parent.id, end: "compensated" });
    return undefined;
  }
  if (state.direction === "backward") return "it is being compensated already";
  if (state.pivoted) draft.effects.push({ kind: "tell parent", parentId: parent.id, end: "past pivot" });
  else startCompensation(draft, "its parent took it back");
  return undefined;
}

/** Advances the steps as far as possible and derives the status of the instance. */
function advance(draft: Draft): void {
  const before = draft.status;
  const status = advanceSteps(draft);
  draft.status = status;
  if (hasEnded(status)) draft.state.deadlineAtMs = undefined;
  if (status === "completed") draft.state.completed = true;
  if (status === "failed") openIncident(draft, before === "failed");
  if (before === "failed") discardDeadLetters(draft);
  if (status === before) return;
  draft.note({ event: "state_changed", from: before, to: status });
  if (before === "failed") draft.effects.push({ kind: "close incident", resolution: status });
  const { parent } = draft.snapshot;
  if (parent !== null && (status === "completed" || status === "compensated")) {
    draft.effects.push({ kind: "tell parent", parentId: parent.id, end: status });
  }
}

function advanceSteps(draft: Draft): SagaStatus {
  if (draft.state.direction === "forward") {
    if (noteMismatches(draft)) return "failed";
    const progress = goForward(draft);
    if (progress === "done") return "completed";
    if (progress === "waiting") return draft.state.pivoted ? "completing" : "running";
    if (draft.state.pivoted || pivotMayHaveHappened(draft) || hasFailedUndo(draft)) return "failed";
    startCompensation(draft, describeStepFailure(draft));
  }
  const progress = goBackward(draft);
  if (progress === "done") return "compensated";
  return progress === "failed" ? "failed" : "compensating";
}

/**
 * Records mismatches between state and definition, and returns whether there are any. While there are, no step begins
 * until the definition fits again or an operator decides.
 */
function noteMismatches(draft: Draft): boolean {
  const { definition, state } = draft;
  const known = state.mismatches ?? {};
  state.mismatches = findMismatches(definition, state);
  if (state.mismatches === undefined) return false;
  for (const [stepPath, note] of Object.entries(state.mismatches)) {
    if (known[stepPath] !== note) draft.note({ event: "failed", stepPath, note });
  }
  return true;
}

function hasFailedUndo({ state }: Draft): boolean {
  return Object.values(state.records).some(({ undo }) => undo?.status === "failed");
}

function describeStepFailure({ state }: Draft): string {
  const failed = Object.entries(state.records).filter(
    ([stepPath, { status }]) => status === "failed" && !hasLostRace(state, stepPath),
  );
  const latest = failed.sort(([, a], [, b]) => b.unit - a.unit)[0];
  return latest === undefined ? "it failed" : `step "${latest[0]}" failed: ${latest[1].error ?? "unknown"}`;
}

/** Opens an incident, or updates the steps and error of the open one if they have changed. */
function openIncident(draft: Draft, isOpen: boolean): void {
  const { stepPaths, error } = describeIncident(draft.state);
  if (isOpen) {
    const before = describeIncident(draft.snapshot.state);
    if (stepPaths.join() === before.stepPaths.join() && error === before.error) return;
  }
  draft.effects.push({ kind: "open incident", stepPaths, error });
}

/** Discards the dead letters of the failed steps that are resolved now: done, settled, skipped or tried again. */
function discardDeadLetters({ snapshot, state, effects }: Draft): void {
  const before = listFailedCommands(snapshot.state);
  const after = new Set(listFailedCommands(state).map(({ stepPath }) => stepPath));
  const commands = before.filter(({ stepPath }) => !after.has(stepPath)).flatMap(({ ids }) => ids);
  if (commands.length > 0) effects.push({ kind: "discard dead letters", commands });
}

function describeIncident(state: SagaState): {
  readonly stepPaths: readonly string[];
  readonly error: string;
} {
  const stepPaths = findStuckSteps(state);
  const [stepPath = ""] = stepPaths;
  const { undo, error } = state.records[stepPath] ?? {};
  return { stepPaths, error: state.mismatches?.[stepPath] ?? undo?.error ?? error ?? "unknown" };
}
