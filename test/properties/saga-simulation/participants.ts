import type { Json } from "../../../src/message/index.ts";
import type { SagaEffect, WorkOutcome } from "../../../src/saga/index.ts";
import type { Simulation } from "./simulation.ts";

/** What really happened outside. Nothing keeps it from happening twice. */
export interface Row {
  readonly nr: number;
  readonly sagaId: string;
  readonly stepPath: string;
  readonly what: "do" | "undo";
  /** The epoch of the undo that did it. */
  readonly epoch: number;
}

export class Ledger {
  readonly rows: Row[] = [];

  write(sagaId: string, stepPath: string, what: Row["what"], epoch = 1): void {
    this.rows.push({ nr: this.rows.length + 1, sagaId, stepPath, what, epoch });
  }

  of(sagaId: string, stepPath: string): readonly Row[] {
    return this.rows.filter((row) => row.sagaId === sagaId && row.stepPath === stepPath);
  }
}

export type Command = Extract<SagaEffect, { kind: "send" }> & { readonly sagaId: string };

/** What the handler of a command makes of it when it is asked. */
export type Handling = "done" | "refuse" | "give up";

interface Seen {
  effect: boolean;
  buried?: boolean;
  effectOf?: string;
  undoneBy?: string;
  result?: Json;
}

const done = (result?: Json): WorkOutcome => ({ kind: "done", result });
const refused: WorkOutcome = { kind: "refused", error: "the answer is no" };
const givenUp: WorkOutcome = { kind: "failed", error: "exhausted: it failed too often" };

export function readRound(stepPath: string): number {
  return Number(/(\d+)$/.exec(stepPath.split("@")[1] ?? "1")?.[1] ?? 1);
}

/** A consumer as ours are: once per message, undo once, never do after undo, repeat only what was not done. */
export class OurConsumer {
  readonly #inbox = new Map<string, Seen>();
  readonly #ledger: Ledger;
  readonly #reached: Set<string>;

  constructor(ledger: Ledger, reached: Set<string>) {
    this.#ledger = ledger;
    this.#reached = reached;
  }

  /** The reply; undefined for a duplicate, which is not answered again. */
  receive(command: Command, handling: Handling): WorkOutcome | undefined {
    const { id, undoes, supersedes, sagaId, stepPath, undo, epoch } = command;
    const before = this.#inbox.get(id);
    if (before?.buried === true) this.#reached.add("a do after its undo");
    if (before !== undefined) return undefined;
    const standing = (supersedes?.ids ?? []).map((one) => this.#origin(one)).find((one) => one !== undefined);
    if (standing !== undefined) {
      this.#markDead(supersedes?.ids, undoes?.ids);
      this.#reached.add("a repeated do");
      this.#inbox.set(id, { effect: true, effectOf: standing.id });
      return done(standing.seen.result);
    }
    const taken = (undoes?.ids ?? []).flatMap((one) => this.#origin(one) ?? []);
    if (undoes !== undefined && taken.length === 0) {
      this.#markDead(supersedes?.ids, undoes.ids);
      this.#inbox.set(id, { effect: false });
      return done();
    }
    if (handling === "give up") return givenUp;
    if (handling === "refuse") {
      this.#markDead(supersedes?.ids);
      this.#inbox.set(id, { effect: false });
      return refused;
    }
    this.#markDead(supersedes?.ids, undoes?.ids);
    for (const { seen } of taken) seen.undoneBy = id;
    const result = undo ? undefined : { round: readRound(stepPath) };
    this.#inbox.set(id, { effect: true, ...(result === undefined ? {} : { result }) });
    this.#ledger.write(sagaId, stepPath, undo ? "undo" : "do", epoch);
    return done(result);
  }

  /** The command that had the effect, if it still stands. */
  #origin(id: string): { readonly id: string; readonly seen: Seen } | undefined {
    const origin = this.#inbox.get(id)?.effectOf ?? id;
    const seen = this.#inbox.get(origin);
    return seen?.effect === true && seen.undoneBy === undefined ? { id: origin, seen } : undefined;
  }

  #markDead(...lists: readonly (readonly string[] | undefined)[]): void {
    for (const id of lists.flatMap((list) => list ?? [])) {
      if (!this.#inbox.has(id)) this.#inbox.set(id, { effect: false, buried: true });
    }
  }
}

/** An external service, which recognises repeated requests by their key. */
export class KeyedService {
  readonly #known = new Map<string, "done" | "refused" | "undone" | "cancelled">();
  readonly #ledger: Ledger;

  constructor(ledger: Ledger) {
    this.#ledger = ledger;
  }

  do(sagaId: string, stepPath: string, handling: Handling): WorkOutcome {
    const key = `${sagaId}:${stepPath}`;
    const known = this.#known.get(key);
    if (known === "cancelled") return { kind: "failed", error: "cancelled before", permanent: true };
    if (known === "refused") return refused;
    if (known === undefined) {
      if (handling === "give up") return givenUp;
      this.#known.set(key, handling === "refuse" ? "refused" : "done");
      if (handling === "refuse") return refused;
      this.#ledger.write(sagaId, stepPath, "do");
    }
    return done({ round: readRound(stepPath) });
  }

  /** `cancels`: what has not come yet will not be done when it comes. */
  undo(sagaId: string, stepPath: string, handling: Handling, epoch: number, cancels: boolean): WorkOutcome {
    if (handling !== "done") return handling === "refuse" ? refused : givenUp;
    const key = `${sagaId}:${stepPath}`;
    if (this.#known.get(key) === "done") {
      this.#known.set(key, "undone");
      this.#ledger.write(sagaId, stepPath, "undo", epoch);
    } else if (cancels && this.#known.get(key) === undefined) this.#known.set(key, "cancelled");
    return done();
  }

  /** A step inside the saga's own transaction. */
  inside(sagaId: string, stepPath: string): void {
    this.#known.set(`${sagaId}:${stepPath}`, "done");
    this.#ledger.write(sagaId, stepPath, "do");
  }
}

/** Between sagas and those who carry out their commands: late, twice, in any order, sometimes not at all. */
export class Network {
  readonly #simulation: Simulation;

  constructor(simulation: Simulation) {
    this.#simulation = simulation;
  }

  send(command: Command): void {
    const simulation = this.#simulation;
    if (simulation.trouble(4)) return simulation.log(() => `command ${command.id} is lost`);
    this.#deliverLater(command);
    if (simulation.trouble(8)) this.#deliverLater(command);
  }

  #deliverLater(command: Command): void {
    this.#simulation.at(this.#simulation.delay(), () => this.#arrive(command));
  }

  #arrive(command: Command): void {
    const simulation = this.#simulation;
    const handling = this.#chooseHandling(command.undo);
    const outcome = this.#handleCommand(command, handling);
    simulation.log(
      () =>
        `command ${command.id} (${command.undo ? "undo" : "do"} ${command.stepPath}) → ${outcome?.kind ?? "duplicate"}`,
    );
    // A person may bring a dead letter back to life, long after.
    if (handling === "give up" && simulation.trouble(15)) this.#deliverLater(command);
    if (outcome === undefined) return;
    // The reply of a participant without memory must at least arrive.
    const mustArrive = outcome.kind === "done" && simulation.findParticipant(command.stepPath) === "plain";
    if (!mustArrive && simulation.trouble(5)) return simulation.log(() => `reply to ${command.id} is lost`);
    this.#reply(command, outcome);
    if (simulation.trouble(8)) this.#reply(command, outcome);
  }

  #reply({ sagaId, id }: Command, outcome: WorkOutcome): void {
    this.#simulation.sendInput(sagaId, { kind: "reply", requestId: id, outcome });
  }

  #chooseHandling(undo: boolean): Handling {
    const simulation = this.#simulation;
    if (simulation.trouble(undo ? 6 : 8)) return "give up";
    return simulation.trouble(undo ? 3 : 8) ? "refuse" : "done";
  }

  #handleCommand(command: Command, handling: Handling): WorkOutcome | undefined {
    const { consumer, service } = this.#simulation;
    const { sagaId, stepPath, undo, epoch } = command;
    const participant = this.#simulation.findParticipant(stepPath);
    if (participant === "ours") return consumer.receive(command, handling);
    return undo
      ? service.undo(sagaId, stepPath, handling, epoch, participant === "keyed")
      : service.do(sagaId, stepPath, handling);
  }
}
