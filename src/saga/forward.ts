import { abandon, beginStep, failStep, storableErrorText } from "./begin.ts";
import { undoUnit } from "./backward.ts";
import type { BranchNode, GroupNode, Node, RepeatNode, StepNode } from "./definition.ts";
import { newRecord, type Draft } from "./draft.ts";
import type { StepRecord } from "./state.ts";

/** done: all steps are done · waiting: a step is in flight · failed: a step failed permanently. */
export type Progress = "done" | "waiting" | "failed";

/**
 * Walks the definition from its start, skips steps that have a record, and begins the next ones. No position is stored,
 * so it cannot disagree with the records.
 */
export function goForward(draft: Draft): Progress {
  return visitSequence(draft, draft.definition.nodes, "");
}

function visitSequence(draft: Draft, nodes: readonly Node[], round: string): Progress {
  for (const node of nodes) {
    const progress = visitNode(draft, node, round);
    if (progress !== "done") return progress;
  }
  return "done";
}

function visitNode(draft: Draft, node: Node, round: string): Progress {
  switch (node.kind) {
    case "step":
      return visitStep(draft, node, node.name + round, () => (draft.state.units += 1));
    case "group":
      return visitGroup(draft, node, round);
    case "branch":
      return visitBranch(draft, node, round);
    case "repeat":
      return visitRepeat(draft, node, round);
  }
}

function visitStep(draft: Draft, step: StepNode, stepPath: string, unit: () => number): Progress {
  const record = draft.state.records[stepPath] ?? beginStep(draft, stepPath, step, unit());
  const progress = toProgress(record);
  if (progress === "done" && (step.pivot || record.pivot === true)) draft.state.pivoted = true;
  return progress;
}

function toProgress({ status }: StepRecord): Progress {
  if (status === "in_progress") return "waiting";
  return status === "failed" ? "failed" : "done";
}

function visitGroup(draft: Draft, group: GroupNode, round: string): Progress {
  const stepPaths = group.members.map((step) => ({ step, stepPath: `${group.name}.${step.name}${round}` }));
  let unit: number | undefined;
  const nextUnit = (): number => (unit ??= draft.state.units += 1);
  const progress = stepPaths.map(({ step, stepPath }) => visitStep(draft, step, stepPath, nextUnit));
  return group.mode === "all"
    ? visitAllGroup(draft, group, stepPaths, progress)
    : visitAnyGroup(draft, group.name + round, stepPaths, progress);
}

type GroupSteps = readonly { readonly step: StepNode; readonly stepPath: string }[];

function visitAllGroup(
  draft: Draft,
  group: GroupNode,
  stepPaths: GroupSteps,
  progress: readonly Progress[],
): Progress {
  if (!progress.includes("failed")) return progress.includes("waiting") ? "waiting" : "done";
  // After the pivot no step is undone, so the other members always finish.
  if (group.whenOneFails === "abandon" && !draft.state.pivoted) {
    for (const { stepPath, step } of stepPaths)
      abandon(draft, stepPath, step, "another one of its group failed");
  }
  const waiting = stepPaths.some(({ stepPath }) => draft.state.records[stepPath]?.status === "in_progress");
  return waiting ? "waiting" : "failed";
}

// The first member that succeeds wins. The others are undone before the saga continues.
function visitAnyGroup(
  draft: Draft,
  group: string,
  stepPaths: GroupSteps,
  progress: readonly Progress[],
): Progress {
  const { records, choices } = draft.state;
  choices[group] ??=
    stepPaths.find(({ stepPath }) => records[stepPath]?.status === "completed")?.stepPath ?? null;
  const winner = choices[group];
  if (winner === null) {
    delete choices[group];
    if (progress.includes("waiting")) return "waiting";
    return progress.includes("failed") ? "failed" : "done"; // done: an operator has skipped all members
  }
  const losers = stepPaths.filter(({ stepPath }) => stepPath !== winner);
  for (const { stepPath, step } of losers)
    abandon(draft, stepPath, step, "another one of its group was first");
  return undoUnit(draft, losers);
}

function visitBranch(draft: Draft, branch: BranchNode, round: string): Progress {
  const stepPath = branch.name + round;
  const known = draft.state.records[stepPath];
  if (known !== undefined) return toProgress(known); // the choice failed, or an operator decided
  let way = draft.state.choices[stepPath];
  if (way === undefined) {
    const chosen = tryOrFail(draft, stepPath, () => ({ way: branch.choose(draft.stepContext()) }))?.way;
    if (draft.state.records[stepPath] !== undefined) return "failed";
    if (chosen === undefined || (chosen !== null && !Object.hasOwn(branch.ways, chosen))) {
      failNode(draft, stepPath, `there is no way "${chosen}"`);
      return "failed";
    }
    way = chosen;
    draft.state.choices[stepPath] = way;
    draft.note({ event: "noted", stepPath, note: way === null ? "not taken" : `took "${way}"` });
  }
  return way === null ? "done" : visitSequence(draft, branch.ways[way] ?? [], round);
}

function visitRepeat(draft: Draft, repeat: RepeatNode, round: string): Progress {
  const stepPath = repeat.name + round;
  const known = draft.state.records[stepPath];
  if (known !== undefined) return toProgress(known); // the repetition failed, or an operator decided
  const rounds = (draft.state.rounds[stepPath] ??= { round: 1, over: false });
  while (!rounds.over) {
    const progress = visitSequence(draft, repeat.body, `${round === "" ? "@" : `${round}.`}${rounds.round}`);
    if (progress !== "done") return progress;
    const over = tryOrFail(draft, stepPath, () => Boolean(repeat.until(draft.stepContext())));
    if (over === undefined) return "failed";
    if (over) rounds.over = true;
    else if (rounds.round >= repeat.maxRounds) {
      rounds.spent = true;
      failNode(draft, stepPath, `it was not over after ${repeat.maxRounds} rounds`);
      return "failed";
    } else rounds.round += 1;
  }
  return "done";
}

function tryOrFail<T>(draft: Draft, stepPath: string, work: () => T): T | undefined {
  try {
    return work();
  } catch (thrown) {
    failNode(draft, stepPath, `its own function failed: ${storableErrorText(thrown)}`);
    return undefined;
  }
}

// A branch whose choice throws fails like a step, so that it appears in the history and can be retried.
function failNode(draft: Draft, stepPath: string, error: string): void {
  const unit = (draft.state.units += 1);
  const record = newRecord(draft.nowMs, "failed", unit);
  record.outcome = "not_done";
  draft.state.records[stepPath] = record;
  failStep(draft, stepPath, record, error);
}
