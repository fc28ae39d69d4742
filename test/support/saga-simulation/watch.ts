import { stepAt } from "../../../src/saga/definition.ts";
import { statusMoves, type Decision, type SagaInput, type StepRecord } from "../../../src/saga/index.ts";
import type { Instance } from "./instance.ts";
import type { Simulation } from "./simulation.ts";

const moves = new Set(statusMoves.map(({ from, to }) => `${from} → ${to}`));

/** What must be true of every single transition. */
export function watch(world: Simulation, instance: Instance, decision: Decision, input: SagaInput): void {
  const wrong = (what: string): void =>
    world.complain(`${instance.id} v${instance.version} ${input.kind}: ${what}`);
  if (decision.changes.length === 0) wrong("I-14: a version without a line in the history");
  const move = `${instance.status} → ${decision.status}`;
  if (instance.status !== decision.status && !moves.has(move)) wrong(`I-09: ${move} is no move`);
  world.reached.add(move);
  for (const { note } of decision.changes) if (note !== undefined) world.reached.add(note);
  watchCommands(instance, decision, wrong);
  watchIncidents(instance, decision, wrong);
  for (const [place, record] of Object.entries(decision.state.records)) {
    if (stepAt(instance.definition, place) !== undefined) watchWinners(instance, place, record, wrong);
  }
  if (instance.state.pivoted && decision.state.direction === "backward")
    wrong("S-22: turned back past the pivot");
}

type Wrong = (what: string) => void;

function watchCommands({ state: before }: Instance, { state, effects }: Decision, wrong: Wrong): void {
  const idsIn = (records: Record<string, StepRecord>): string[] =>
    Object.values(records).flatMap(({ ids, undo }) => [...ids, ...(undo?.ids ?? [])]);
  const known = new Set(idsIn(before.records));
  const recorded = idsIn(state.records).filter((id) => !known.has(id));
  const sent = effects.flatMap((effect) =>
    effect.kind === "send" || effect.kind === "start child" ? [effect.id] : [],
  );
  if (recorded.toSorted().join() !== sent.toSorted().join())
    wrong(`I-15: recorded ${recorded.join()}, sent ${sent.join()}`);
}

function watchIncidents({ incidents, status }: Instance, decision: Decision, wrong: Wrong): void {
  const count = (kind: string): number => decision.effects.filter((effect) => effect.kind === kind).length;
  const open = Math.max(incidents.length, count("open incident")) - count("close incident");
  if (open !== (decision.status === "failed" ? 1 : 0))
    wrong(`I-13: ${status} → ${decision.status} with ${open} open incidents`);
  if (count("close incident") > incidents.length) wrong("an incident is closed that was not open");
  for (const effect of decision.effects) {
    if (effect.kind === "open incident" && effect.places.length === 0)
      wrong("an incident that names no step");
  }
}

/** What may still become of a step, or of its undo, that has ended. */
const after: Readonly<Record<string, readonly string[]>> = {
  completed: ["compensating", "compensated"],
  failed: ["completed", "compensating", "compensated", "skipped", "done", "settled"],
  compensating: ["compensated", "skipped"],
  compensated: ["compensating"],
};

/** One end for each epoch; what a late success changes after the fact is counted by the epoch of its undo. */
function watchWinners({ state, winners }: Instance, place: string, record: StepRecord, wrong: Wrong): void {
  const old = state.records[place];
  const won = (of: string, was: string | undefined, is: string): void => {
    if (was !== undefined && was !== "in_progress") {
      if (was !== is && !(after[was] ?? []).includes(is)) wrong(`I-16: ${of} was ${was} and is ${is}`);
      return;
    }
    if (is === "in_progress") return;
    const count = (winners.get(of) ?? 0) + 1;
    winners.set(of, count);
    if (count > 1) wrong(`I-16: ${of} ended ${count} times`);
  };
  const sameEpoch = old === undefined || old.epoch === record.epoch;
  won(`${place} #${record.epoch}`, sameEpoch ? old?.status : undefined, record.status);
  const { undo } = record;
  if (undo === undefined) return;
  const sameUndo = old?.undo?.epoch === undo.epoch;
  won(`undo of ${place} #${undo.epoch}`, sameUndo ? old.undo?.status : undefined, undo.status);
}
