import type { Json } from "../../../src/message/index.ts";
import {
  newState,
  type SagaDefinition,
  type SagaState,
  type SagaStatus,
  type SagaInput,
  type WorkOutcome,
} from "../../../src/saga/index.ts";
import type { LocalWork } from "../../../src/saga/timers.ts";
import { readRound, type Handling } from "./participants.ts";
import type { Simulation } from "./simulation.ts";

/** One saga of the simulation. */
export interface Instance {
  readonly id: string;
  readonly definition: SagaDefinition;
  readonly input: Json;
  readonly parent: { readonly id: string; readonly stepPath: string } | null;
  status: SagaStatus;
  /** Where it has been. */
  readonly rested: Set<SagaStatus>;
  /** As it was stored. */
  state: SagaState;
  /** As it was decided, before it was stored. */
  memory: SagaState;
  version: number;
  /** Places of open incidents. */
  incidents: (readonly string[])[];
  /** Decisions of operators, by step path. */
  readonly byHand: Set<string>;
  /** Counts winners: of what, and of which epoch. */
  readonly winners: Map<string, number>;
}

export function newInstance(given: Pick<Instance, "id" | "definition" | "input" | "parent">): Instance {
  return {
    ...given,
    status: "started",
    rested: new Set(),
    state: newState(),
    memory: newState(),
    version: 0,
    incidents: [],
    byHand: new Set(),
    winners: new Map(),
  };
}

const LEASE_MS = 30_000;
const GRACE_MS = 2_000;
const failed: WorkOutcome = { kind: "failed", error: "it threw" };

interface Process {
  readonly running: Set<string>;
  down: boolean;
}

/** The processes that do local work: they hang, throw, and die with it in their hands. */
export class LocalWorker {
  readonly #simulation: Simulation;
  readonly #processes = new Map<string, Process>();
  readonly #claims = new Map<string, number>();

  constructor(simulation: Simulation) {
    this.#simulation = simulation;
  }

  isDown(instance: Instance): boolean {
    return this.#findProcess(instance).down;
  }

  tick({ id }: Instance): SagaInput {
    const claims = this.#claims.get(id) ?? 1;
    return claims > 1 ? { kind: "tick", claims } : { kind: "tick" };
  }

  look(instance: Instance, due: readonly LocalWork[]): void {
    const process = this.#findProcess(instance);
    if (process.down) return;
    for (const work of due) {
      const name = formatWork(work);
      if (process.running.has(name)) continue;
      process.running.add(name);
      if (work.kind === "tx") this.#simulation.at(1, () => this.#inside(instance, process, work));
      else this.#outside(instance, process, work);
    }
  }

  #findProcess({ id }: Instance): Process {
    const process = this.#processes.get(id) ?? { running: new Set(), down: false };
    this.#processes.set(id, process);
    return process;
  }

  /** Its own writes and the transition are one: either both or none. */
  #inside(instance: Instance, process: Process, work: LocalWork): void {
    const simulation = this.#simulation;
    if (process.down) return;
    const { stepPath, undo, epoch, attempt } = work;
    const effort = undo ? instance.state.records[stepPath]?.undo : instance.state.records[stepPath];
    process.running.delete(formatWork(work));
    if (effort?.status !== "in_progress" || effort.epoch !== epoch || effort.attempt !== attempt) return;
    const input = { kind: "worked", stepPath, undo, epoch, attempt } as const;
    if (simulation.trouble(10)) {
      const permanent = simulation.choices.chance(30);
      simulation.apply(instance, {
        ...input,
        outcome: { kind: "failed", error: "rolled back", certain: true, permanent },
      });
      return;
    }
    const outcome = undo
      ? simulation.service.undo(instance.id, stepPath, "done", epoch, true)
      : (simulation.service.inside(instance.id, stepPath),
        { kind: "done", result: { round: readRound(stepPath) } } as const);
    simulation.apply(instance, { ...input, outcome });
  }

  #outside(instance: Instance, process: Process, work: LocalWork): void {
    const simulation = this.#simulation;
    const plain = simulation.findParticipant(work.stepPath) === "plain";
    const report = (outcome: WorkOutcome): void => this.#reportOutcome(instance, process, work, outcome);
    const afterwards = (delayMs: number, run: () => void): void =>
      simulation.at(delayMs, () => {
        if (!process.down) run();
      });
    if (!simulation.trouble(20))
      return afterwards(5 + simulation.delay(), () => report(this.#do(instance, work)));
    switch (
      simulation.choices.of(["throws", "did, then throws", "hangs", "dies before", "dies after", "zombie"])
    ) {
      case "throws":
        return afterwards(10, () =>
          report({ ...failed, ...(simulation.choices.chance(30) ? { permanent: true } : {}) }),
        );
      case "did, then throws":
        return afterwards(10, () => {
          this.#do(instance, work);
          report(failed);
        });
      case "hangs":
        afterwards((work.step.timeoutMs ?? LEASE_MS) + GRACE_MS, () => {
          report({ kind: "unknown", error: "it did not end in time" });
          if (!simulation.choices.chance(60)) return;
          afterwards(simulation.delay(), () => {
            const late = this.#do(instance, work);
            if (late.kind === "done" && (plain || simulation.choices.chance(70)))
              this.#reportLate(instance, work, late);
          });
        });
        return undefined;
      case "dies before":
        return afterwards(10, () => this.#die(instance, process));
      case "dies after":
        return afterwards(10, () => {
          this.#do(instance, work);
          this.#die(instance, process);
        });
      case "zombie":
        return afterwards(10, () => {
          if (!plain) simulation.at(LEASE_MS + simulation.delay(), () => void this.#do(instance, work));
          this.#die(instance, process);
        });
    }
  }

  #do({ id }: Instance, { stepPath, undo, epoch }: LocalWork): WorkOutcome {
    const { service } = this.#simulation;
    const handling: Handling = this.#simulation.trouble(8) ? "refuse" : "done";
    const outcome = undo
      ? service.undo(id, stepPath, handling, epoch, this.#simulation.findParticipant(stepPath) !== "plain")
      : service.do(id, stepPath, handling);
    this.#simulation.log(() => `${id} ${undo ? "undo" : "do"} ${stepPath} outside → ${outcome.kind}`);
    return outcome;
  }

  #reportOutcome(instance: Instance, process: Process, work: LocalWork, outcome: WorkOutcome): void {
    process.running.delete(formatWork(work));
    this.#claims.delete(instance.id);
    this.#simulation.apply(instance, workedInput(work, outcome));
  }

  #reportLate(instance: Instance, work: LocalWork, outcome: WorkOutcome): void {
    this.#simulation.sendInput(instance.id, workedInput(work, outcome));
  }

  /** Its work in flight is not reported; another worker takes over when its lease has run out. */
  #die(instance: Instance, process: Process): void {
    process.down = true;
    this.#simulation.log(() => `the process of ${instance.id} dies`);
    this.#simulation.at(LEASE_MS, () => {
      this.#processes.set(instance.id, { running: new Set(), down: false });
      this.#claims.set(instance.id, (this.#claims.get(instance.id) ?? 1) + 1);
      this.#simulation.apply(instance, this.tick(instance));
    });
  }
}

function workedInput({ stepPath, undo, epoch, attempt }: LocalWork, outcome: WorkOutcome): SagaInput {
  return { kind: "worked", stepPath, undo, epoch, attempt, outcome };
}

function formatWork({ stepPath, undo, epoch, attempt }: LocalWork): string {
  return `${stepPath} ${undo ? "undo" : "do"} ${epoch}.${attempt}`;
}
