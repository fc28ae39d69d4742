import { stepAt, type Node, type StepNode } from "../../../src/saga/definition.ts";
import { type StepRecord, statusMoves, type Decision, type SagaInput } from "../../../src/saga/index.ts";
import { hasLostRace } from "../../../src/saga/state.ts";
import type { Instance } from "./local-worker.ts";
import type { Row } from "./participants.ts";
import type { Simulation } from "./simulation.ts";

/** What must be true when nothing is left to happen: I-13 and I-17. */
export function check(simulation: Simulation): void {
  for (const instance of simulation.instances.values()) new Check(simulation, instance).all();
}

class Check {
  readonly #simulation: Simulation;
  readonly #instance: Instance;

  constructor(simulation: Simulation, instance: Instance) {
    this.#simulation = simulation;
    this.#instance = instance;
  }

  all(): void {
    const { status, state } = this.#instance;
    if (status === "completed") this.#checkCompleted();
    else if (status === "compensated") this.#checkCompensated();
    else if (status !== "failed" && !this.#waitsForChild()) this.#wrong(`I-13: it rests as ${status}`);
    for (const [stepPath, record] of Object.entries(state.records)) this.#checkRecord(stepPath, record);
    for (const { stepPath, what } of this.#simulation.ledger.rows.filter(
      (row) => row.sagaId === this.#instance.id,
    )) {
      if (state.records[stepPath] === undefined)
        this.#wrong(`${what} of ${stepPath}, which was never written down`);
    }
  }

  #wrong(what: string): void {
    this.#simulation.complain(`${this.#instance.id} ${this.#instance.status}: ${what}`);
  }

  #rows(stepPath: string): { readonly dos: readonly Row[]; readonly undos: readonly Row[] } {
    const rows = this.#simulation.ledger.of(this.#instance.id, stepPath);
    return {
      dos: rows.filter(({ what }) => what === "do"),
      undos: rows.filter(({ what }) => what === "undo"),
    };
  }

  #checkRecord(stepPath: string, record: StepRecord): void {
    const { dos, undos } = this.#rows(stepPath);
    if (dos.length > 1) this.#wrong(`I-13: ${stepPath} was done ${dos.length} times`);
    if (undos.length > dos.length) this.#wrong(`I-13: ${stepPath} was undone, not done`);
    if ((undos[0]?.nr ?? Infinity) < (dos[0]?.nr ?? 0))
      this.#wrong(`I-13: ${stepPath} was undone before it was done`);
    if (record.undo === undefined && undos.length > 0)
      this.#wrong(`${stepPath} was undone without a request`);
    this.#checkEvent(stepPath, record);
  }

  /** A wait continues only with an event meant for it: the event itself says which of its keys matched. */
  #checkEvent(stepPath: string, { result }: StepRecord): void {
    const work = stepAt(this.#instance.definition, stepPath)?.work;
    const { meant } = (result ?? {}) as { readonly meant?: readonly string[] };
    if (work?.kind !== "wait" || meant === undefined) return;
    if (!meant.includes(work.by === null ? "key" : "other"))
      this.#wrong(`${stepPath} went on with an event of another key`);
  }

  /** A child that is parked keeps its parent waiting. */
  #waitsForChild(): boolean {
    const { state, definition } = this.#instance;
    return Object.entries(state.records).some(([stepPath, { status, undo, ids }]) => {
      const waits = status === "in_progress" || undo?.status === "in_progress";
      if (!waits || stepAt(definition, stepPath)?.work.kind !== "child") return false;
      return ids.some((id) => {
        const child = this.#simulation.instances.get(id);
        if (child === undefined) return false;
        return child.status === "failed" || new Check(this.#simulation, child).#waitsForChild();
      });
    });
  }

  #checkCompleted(): void {
    const { definition } = this.#instance;
    this.#walk(definition.nodes, "");
  }

  #walk(nodes: readonly Node[], round: string): void {
    const { state } = this.#instance;
    for (const node of nodes) {
      if (node.kind === "step") this.#checkDone(node.name + round, node);
      else if (node.kind === "group") {
        for (const member of node.members) {
          const stepPath = `${node.name}.${member.name}${round}`;
          if (hasLostRace(state, stepPath)) this.#checkBeaten(stepPath, member);
          else this.#checkDone(stepPath, member);
        }
      } else if (node.kind === "branch") {
        if (this.#isManual(node.name + round)) continue;
        const way = state.choices[node.name + round];
        if (way === undefined) this.#wrong(`the choice ${node.name}${round} was never made`);
        else if (way !== null) this.#walk(node.ways[way] ?? [], round);
      } else {
        const rounds = state.rounds[node.name + round]?.round ?? 0;
        if (rounds === 0) this.#wrong(`${node.name}${round} was never begun`);
        for (let nr = 1; nr <= rounds; nr += 1)
          this.#walk(node.body, `${round === "" ? "@" : `${round}.`}${nr}`);
      }
    }
  }

  #isManual(stepPath: string): boolean {
    return this.#instance.byHand.has(stepPath);
  }

  #checkDone(stepPath: string, { work }: StepNode): void {
    if (this.#isManual(stepPath)) return;
    const record = this.#instance.state.records[stepPath];
    if (record?.status !== "completed")
      return this.#wrong(`I-13: ${stepPath} is ${record?.status ?? "not there"}`);
    if (work.kind === "wait" || work.kind === "delay") return;
    if (work.kind === "child") {
      const children = record.ids.flatMap((id) => this.#simulation.instances.get(id) ?? []);
      const kept = children.some((child) => child.status === "completed" || isRecalled(child, "completed"));
      if (!kept) this.#wrong(`S-20: child ${stepPath} is ${children.map(({ status }) => status).join()}`);
      return;
    }
    const { dos, undos } = this.#rows(stepPath);
    if (dos.length !== 1 || undos.length > 0) {
      this.#wrong(`I-13: ${stepPath} was done ${dos.length} times and undone ${undos.length} times`);
    }
  }

  /** One of `any` that was not the first. */
  #checkBeaten(stepPath: string, step: StepNode): void {
    if (step.undo === null || step.undo.kind === "none" || this.#isManual(stepPath)) return;
    const { dos, undos } = this.#rows(stepPath);
    if (dos.length !== undos.length) this.#wrong(`I-13: ${stepPath} lost, but was not undone`);
  }

  #checkCompensated(): void {
    const { state, definition } = this.#instance;
    for (const [stepPath, record] of Object.entries(state.records)) {
      const step = stepAt(definition, stepPath);
      if (this.#isManual(stepPath)) continue;
      const { dos, undos } = this.#rows(stepPath);
      if (step === undefined) {
        if (dos.length !== undos.length)
          this.#wrong(`${stepPath} was done, is not in the definition and was not undone`);
        continue;
      }
      if (step.pivot && dos.length > 0) this.#wrong(`S-22: the pivot ${stepPath} was done anyway`);
      if (step.undo === null || step.undo.kind === "none") continue;
      if (dos.length !== undos.length) this.#wrong(`I-13, I-17: ${stepPath} was done and not undone`);
      if (step.undo.kind !== "child") continue;
      for (const id of record.ids) {
        const child = this.#simulation.instances.get(id);
        if (child === undefined || child.status === "compensated") continue;
        if (isRecalled(child, "compensated")) continue;
        this.#wrong(`S-20: child ${stepPath} is ${child.status}`);
      }
    }
    this.#checkOrder();
  }

  // Of two that stood at the same time, the later one goes first. What was undone alone, because another step was
  // first or because it succeeded after the wait had ended, is not part of that order.
  #checkOrder(): void {
    const { state, definition } = this.#instance;
    const pairs = Object.entries(state.records).flatMap(([stepPath, { unit, undo }]) => {
      const [{ dos, undos }, step] = [this.#rows(stepPath), stepAt(definition, stepPath)];
      const [did, undid] = [dos[0]?.nr, undos[0]?.nr];
      const alone = this.#isManual(stepPath) || hasLostRace(state, stepPath) || (undo?.epoch ?? 1) > 1;
      return step === undefined || did === undefined || undid === undefined || alone
        ? []
        : [{ stepPath, unit, did, undid }];
    });
    for (const a of pairs) {
      for (const b of pairs) {
        if (a.unit !== b.unit && a.did < b.did && b.did < a.undid && a.undid < b.undid) {
          this.#wrong(`I-13: ${a.stepPath} was undone before ${b.stepPath}, which came after it`);
        }
      }
    }
  }
}

/** A late success may call back one that had ended, to be undone; if that fails, it has an incident of its own. */
function isRecalled({ status, rested }: Instance, end: "completed" | "compensated"): boolean {
  return status === "failed" && rested.has(end);
}

const moves = new Set(statusMoves.map(({ from, to }) => `${from} → ${to}`));

/** What must be true of every single transition. */
export function watch(
  simulation: Simulation,
  instance: Instance,
  decision: Decision,
  input: SagaInput,
): void {
  const wrong = (what: string): void =>
    simulation.complain(`${instance.id} v${instance.version} ${input.kind}: ${what}`);
  if (decision.changes.length === 0) wrong("I-14: a version without a line in the history");
  const move = `${instance.status} → ${decision.status}`;
  if (instance.status !== decision.status && !moves.has(move)) wrong(`I-09: ${move} is no move`);
  simulation.reached.add(move);
  for (const { note } of decision.changes) if (note !== undefined) simulation.reached.add(note);
  watchCommands(instance, decision, wrong);
  watchIncidents(instance, decision, wrong);
  for (const [stepPath, record] of Object.entries(decision.state.records)) {
    if (stepAt(instance.definition, stepPath) !== undefined) watchWinners(instance, stepPath, record, wrong);
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
    if (effect.kind === "open incident" && effect.stepPaths.length === 0)
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
function watchWinners(
  { state, winners }: Instance,
  stepPath: string,
  record: StepRecord,
  wrong: Wrong,
): void {
  const old = state.records[stepPath];
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
  won(`${stepPath} #${record.epoch}`, sameEpoch ? old?.status : undefined, record.status);
  const { undo } = record;
  if (undo === undefined) return;
  const sameUndo = old?.undo?.epoch === undo.epoch;
  won(`undo of ${stepPath} #${undo.epoch}`, sameUndo ? old.undo?.status : undefined, undo.status);
}
