import { stepAt, type Node, type StepNode } from "../../../src/saga/definition.ts";
import { hasLostRace } from "../../../src/saga/group-race.ts";
import type { StepRecord } from "../../../src/saga/index.ts";
import type { Row } from "./ledger.ts";
import type { Instance } from "./instance.ts";
import type { Simulation } from "./simulation.ts";

/** What must be true when nothing is left to happen: I-13 and I-17. */
export function check(world: Simulation): void {
  for (const instance of world.instances.values()) new Check(world, instance).all();
}

class Check {
  readonly #simulation: Simulation;
  readonly #instance: Instance;

  constructor(world: Simulation, instance: Instance) {
    this.#simulation = world;
    this.#instance = instance;
  }

  all(): void {
    const { status, state } = this.#instance;
    if (status === "completed") this.#checkCompleted();
    else if (status === "compensated") this.#checkCompensated();
    else if (status !== "failed" && !this.#waitsForChild()) this.#wrong(`I-13: it rests as ${status}`);
    for (const [place, record] of Object.entries(state.records)) this.#checkRecord(place, record);
    for (const { place, what } of this.#simulation.ledger.rows.filter(
      (row) => row.sagaId === this.#instance.id,
    )) {
      if (state.records[place] === undefined)
        this.#wrong(`${what} of ${place}, which was never written down`);
    }
  }

  #wrong(what: string): void {
    this.#simulation.complain(`${this.#instance.id} ${this.#instance.status}: ${what}`);
  }

  #rows(place: string): { readonly dos: readonly Row[]; readonly undos: readonly Row[] } {
    const rows = this.#simulation.ledger.of(this.#instance.id, place);
    return {
      dos: rows.filter(({ what }) => what === "do"),
      undos: rows.filter(({ what }) => what === "undo"),
    };
  }

  #checkRecord(place: string, record: StepRecord): void {
    const { dos, undos } = this.#rows(place);
    if (dos.length > 1) this.#wrong(`I-13: ${place} was done ${dos.length} times`);
    if (undos.length > dos.length) this.#wrong(`I-13: ${place} was undone, not done`);
    if ((undos[0]?.nr ?? Infinity) < (dos[0]?.nr ?? 0))
      this.#wrong(`I-13: ${place} was undone before it was done`);
    if (record.undo === undefined && undos.length > 0)
      this.#wrong(`${place} was undone without being told to`);
    this.#checkEvent(place, record);
  }

  /** A wait goes on with nothing but what was meant for it: the event itself says by which of its keys it was. */
  #checkEvent(place: string, { result }: StepRecord): void {
    const work = stepAt(this.#instance.definition, place)?.work;
    const { meant } = (result ?? {}) as { readonly meant?: readonly string[] };
    if (work?.kind !== "wait" || meant === undefined) return;
    if (!meant.includes(work.by === null ? "key" : "other"))
      this.#wrong(`${place} went on with an event of another key`);
  }

  /** A child that is parked keeps its parent waiting. */
  #waitsForChild(): boolean {
    const { state, definition } = this.#instance;
    return Object.entries(state.records).some(([place, { status, undo, ids }]) => {
      const waits = status === "in_progress" || undo?.status === "in_progress";
      if (!waits || stepAt(definition, place)?.work.kind !== "child") return false;
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
          const place = `${node.name}.${member.name}${round}`;
          if (hasLostRace(state, place)) this.#checkBeaten(place, member);
          else this.#checkDone(place, member);
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

  #isManual(place: string): boolean {
    return this.#instance.byHand.has(place);
  }

  #checkDone(place: string, { work }: StepNode): void {
    if (this.#isManual(place)) return;
    const record = this.#instance.state.records[place];
    if (record?.status !== "completed")
      return this.#wrong(`I-13: ${place} is ${record?.status ?? "not there"}`);
    if (work.kind === "wait" || work.kind === "delay") return;
    if (work.kind === "child") {
      const children = record.ids.flatMap((id) => this.#simulation.instances.get(id) ?? []);
      const kept = children.some((child) => child.status === "completed" || isRecalled(child, "completed"));
      if (!kept) this.#wrong(`S-20: child ${place} is ${children.map(({ status }) => status).join()}`);
      return;
    }
    const { dos, undos } = this.#rows(place);
    if (dos.length !== 1 || undos.length > 0) {
      this.#wrong(`I-13: ${place} was done ${dos.length} times and undone ${undos.length} times`);
    }
  }

  /** One of `any` that was not the first. */
  #checkBeaten(place: string, step: StepNode): void {
    if (step.undo === null || step.undo.kind === "none" || this.#isManual(place)) return;
    const { dos, undos } = this.#rows(place);
    if (dos.length !== undos.length) this.#wrong(`I-13: ${place} lost, but was not undone`);
  }

  #checkCompensated(): void {
    const { state, definition } = this.#instance;
    for (const [place, record] of Object.entries(state.records)) {
      const step = stepAt(definition, place);
      if (this.#isManual(place)) continue;
      const { dos, undos } = this.#rows(place);
      if (step === undefined) {
        if (dos.length !== undos.length)
          this.#wrong(`${place} was done, is not in the definition and was not undone`);
        continue;
      }
      if (step.pivot && dos.length > 0) this.#wrong(`S-22: the pivot ${place} was done all the same`);
      if (step.undo === null || step.undo.kind === "none") continue;
      if (dos.length !== undos.length) this.#wrong(`I-13, I-17: ${place} was done and not undone`);
      if (step.undo.kind !== "child") continue;
      for (const id of record.ids) {
        const child = this.#simulation.instances.get(id);
        if (child === undefined || child.status === "compensated") continue;
        if (isRecalled(child, "compensated")) continue;
        this.#wrong(`S-20: child ${place} is ${child.status}`);
      }
    }
    this.#checkOrder();
  }

  // Of two that stood at the same time, the later one goes first. What was undone on its own, because somebody else was
  // first or because it succeeded when nobody waited any more, has no place in that order.
  #checkOrder(): void {
    const { state, definition } = this.#instance;
    const pairs = Object.entries(state.records).flatMap(([place, { unit, undo }]) => {
      const [{ dos, undos }, step] = [this.#rows(place), stepAt(definition, place)];
      const [did, undid] = [dos[0]?.nr, undos[0]?.nr];
      const alone = this.#isManual(place) || hasLostRace(state, place) || (undo?.epoch ?? 1) > 1;
      return step === undefined || did === undefined || undid === undefined || alone
        ? []
        : [{ place, unit, did, undid }];
    });
    for (const a of pairs) {
      for (const b of pairs) {
        if (a.unit !== b.unit && a.did < b.did && b.did < a.undid && a.undid < b.undid) {
          this.#wrong(`I-13: ${a.place} was undone before ${b.place}, which came after it`);
        }
      }
    }
  }
}

/** A late success may call back one that had ended, to be undone; if that fails, it has an incident of its own. */
function isRecalled({ status, rested }: Instance, end: "completed" | "compensated"): boolean {
  return status === "failed" && rested.has(end);
}
