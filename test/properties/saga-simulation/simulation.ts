import type { Json } from "../../../src/message/index.ts";
import { stripRound } from "../../../src/saga/definition.ts";
import { collectResults } from "../../../src/saga/draft.ts";
import {
  hasEnded,
  listLocalWork,
  nextDueMs,
  listSteps,
  type decide as Decide,
  type Decision,
  type SagaDefinition,
  type SagaEffect,
  type SagaInput,
  type SagaState,
  decide,
} from "../../../src/saga/index.ts";
import { seededRandom } from "../../support/random-data.ts";
import { watch, check } from "./check.ts";
import { Choices, events, type Generated, type Participant, shrink, generateSaga } from "./generate-saga.ts";
import { newInstance, type Instance, LocalWorker } from "./local-worker.ts";
import { Ledger, KeyedService, OurConsumer, Network } from "./participants.ts";

/** How much goes wrong: nothing, some, much. */
export type FaultLevel = 0 | 1 | 2;

const POLL_MS = 2_000;
const MAX_EVENTS = 20_000;

/** Sagas, their participants and everything between them, in a time of its own. */
export class Simulation {
  readonly choices: Choices;
  readonly weather: FaultLevel;
  readonly instances = new Map<string, Instance>();
  /** What came to pass, so that nobody believes a simulation in which nothing happens. */
  readonly reached = new Set<string>();
  readonly ledger = new Ledger();
  readonly consumer = new OurConsumer(this.ledger, this.reached);
  readonly service = new KeyedService(this.ledger);
  readonly violations: string[] = [];
  readonly trace: string[] = [];
  nowMs = 1_000_000;
  decisions = 0;
  /** Nothing fails any more. */
  healed = false;
  readonly #decide: typeof Decide;
  readonly #participants: Generated["participants"];
  readonly #tracing: boolean;
  readonly #queue: { readonly atMs: number; readonly nr: number; readonly run: () => void }[] = [];
  readonly #keys = new Set<string>();
  readonly #network = new Network(this);
  readonly #worker = new LocalWorker(this);
  readonly #waking = new Map<string, number>();
  #nr = 0;
  #events = 0;
  #ids = 0;
  #operations = 6;

  constructor(choices: Choices, generated: Generated, decide: typeof Decide, tracing = false) {
    this.choices = choices;
    this.weather = choices.of([0, 1, 2]);
    this.#decide = decide;
    this.#participants = generated.participants;
    this.#tracing = tracing;
  }

  at(delayMs: number, run: () => void): void {
    const entry = { atMs: this.nowMs + delayMs, nr: (this.#nr += 1), run };
    let index = this.#queue.length;
    while (index > 0 && (this.#queue[index - 1]?.atMs ?? 0) <= entry.atMs) index -= 1;
    this.#queue.splice(index, 0, entry);
  }

  /** Until nothing is left to happen. */
  run(): void {
    for (let count = 0; this.violations.length === 0; count += 1) {
      const next = this.#queue.pop();
      if (next === undefined) return;
      if (count > MAX_EVENTS) return this.complain("it never comes to rest");
      this.nowMs = Math.max(this.nowMs, next.atMs);
      next.run();
    }
  }

  log(text: () => string): void {
    if (this.#tracing) this.trace.push(`${this.nowMs - 1_000_000} ${text()}`);
  }

  complain(text: string): void {
    this.violations.push(text);
    this.log(() => `VIOLATION ${text}`);
  }

  findParticipant(stepPath: string): Participant {
    return this.#participants.get(stripRound(stepPath)) ?? "keyed";
  }

  /** Something goes wrong, more often in bad weather. */
  trouble(percent: number): boolean {
    return !this.healed && this.weather > 0 && this.choices.chance(percent * this.weather);
  }

  /** A delay: mostly short, sometimes longer than every timeout. */
  delay(): number {
    const spans = this.weather === 0 || this.healed ? 2 : 6;
    return [10, 900, 3_000, 12_000, 45_000, 200_000][this.choices.upTo(spans)] ?? 10;
  }

  start(
    definition: SagaDefinition,
    input: Json,
    parent: Instance["parent"] = null,
    id = this.newId(),
  ): boolean {
    const key = `${definition.name}/${definition.key(input)}`;
    if (this.#keys.has(key)) return false;
    this.#keys.add(key);
    const instance = newInstance({ id, definition, input, parent });
    this.instances.set(id, instance);
    this.apply(instance, { kind: "start" });
    this.#scheduleEvents(instance);
    return true;
  }

  /** One transition: the decision, its effects, and what is due after it. */
  apply(instance: Instance, input: SagaInput): Decision {
    const decision = this.#decideTwice(instance, input);
    this.log(() => `${instance.id} ${JSON.stringify(input)} → ${decision.ignored ?? describe(decision)}`);
    if (decision.ignored !== undefined) this.reached.add(decision.ignored);
    else {
      watch(this, instance, decision, input);
      const parked = decision.status === "failed" && instance.status !== "failed";
      instance.status = decision.status;
      instance.rested.add(decision.status);
      instance.memory = decision.state;
      instance.state = roundTrip(decision.state);
      instance.version += 1;
      for (const effect of decision.effects) this.#perform(instance, effect);
      if (parked) this.#callOperator(instance);
    }
    this.wake(instance);
    return decision;
  }

  newId(): string {
    return `i${(this.#ids += 1)}`;
  }

  /** Local work that is due begins, and the clock is looked at when something else is. */
  wake(instance: Instance): void {
    this.#worker.look(instance, listLocalWork(instance.definition, instance.state, this.nowMs));
    const dueMs = nextDueMs(instance.state, hasEnded(instance.status));
    if (dueMs === null) return;
    const atMs = dueMs <= this.nowMs ? this.nowMs + POLL_MS : dueMs;
    if ((this.#waking.get(instance.id) ?? Infinity) <= atMs) return;
    this.#waking.set(instance.id, atMs);
    this.at(atMs - this.nowMs, () => {
      if (this.#waking.get(instance.id) === atMs) this.#waking.delete(instance.id);
      if (!this.#worker.isDown(instance)) this.apply(instance, this.#worker.tick(instance));
    });
  }

  #decideTwice(instance: Instance, input: SagaInput): Decision {
    const { definition } = instance;
    const made = this.#ids;
    const once = (state: SagaState): Decision => {
      this.#ids = made;
      const ports = { nowMs: this.nowMs, newId: () => this.newId(), random: seededRandom(made + this.nowMs) };
      return this.#decide(definition, { ...instance, state }, input, ports);
    };
    this.decisions += 1;
    const decision = once(instance.state);
    if (this.decisions % 10 === 3) {
      const [again, last] = [once(instance.memory), this.#ids];
      if (comparable(again) !== comparable(decision)) this.complain("I-30: JSON changes what is decided");
      this.#ids = last;
    }
    return decision;
  }

  #perform(instance: Instance, effect: SagaEffect): void {
    switch (effect.kind) {
      case "send":
        return this.#network.send({ ...effect, sagaId: instance.id });
      case "start child": {
        const { stepPath, id, definition, input } = effect;
        if (this.start(definition, input as Json, { id: instance.id, stepPath }, id)) return;
        const { epoch = 1, attempt = 1 } = instance.state.records[stepPath] ?? {};
        const outcome = { kind: "failed", error: "exists", certain: true, permanent: true } as const;
        return this.sendInput(instance.id, {
          kind: "worked",
          stepPath,
          undo: false,
          epoch,
          attempt,
          outcome,
        });
      }
      case "revoke child":
        return this.sendInput(effect.id, { kind: "revoke" });
      case "tell parent": {
        const results =
          effect.end === "completed" ? (roundTrip(collectResults(instance.state)) as Json) : null;
        return this.sendInput(effect.parentId, {
          kind: "child",
          childId: instance.id,
          end: effect.end,
          results,
        });
      }
      case "open incident":
        instance.incidents = [effect.stepPaths]; // an open one names other steps from now on
        return undefined;
      case "close incident":
        instance.incidents.pop();
        return undefined;
      case "discard dead letters":
        return undefined;
    }
  }

  /** Pending input: it may take long, but it arrives. */
  sendInput(id: string, input: SagaInput): void {
    this.at(this.delay(), () => {
      const instance = this.instances.get(id);
      if (instance !== undefined) this.apply(instance, input);
    });
  }

  #scheduleEvents(instance: Instance): void {
    const { definition, input } = instance;
    const waits = listSteps(definition.nodes).filter(({ step }) => step.work.kind === "wait");
    const key = definition.key(input);
    for (const { step } of waits) {
      const { work } = step;
      const type = work.kind === "wait" ? work.event.name : (events[0]?.name ?? "");
      for (let count = this.choices.of([1, 0, 2, 3]); count > 0; count -= 1) {
        // In turn and not by chance, which would be used up by what seldom matters.
        const keys = [{ key, other: key }, { key }, { other: key }][(this.#events += 1) % 3] ?? {};
        const data = { round: 1, ...keys, meant: Object.keys(keys) };
        this.sendInput(instance.id, { kind: "event", id: this.newId(), type, data });
      }
    }
  }

  #callOperator(instance: Instance): void {
    if (this.#operations <= 0 || this.choices.chance(25)) return;
    this.#operations -= 1;
    this.at(1_000 + this.delay(), () => this.#operate(instance));
  }

  #operate(instance: Instance): void {
    const by = { actor: "ann", reason: "test" };
    const stepPath = instance.incidents[0]?.[0];
    const kind = this.choices.of(["retry", "retry", "settle", "skip"]);
    if (stepPath === undefined) return;
    if (kind === "retry")
      this.apply(instance, this.choices.chance(50) ? { kind, stepPath, by } : { kind, by });
    else this.decideManually(instance, stepPath, kind);
  }

  decideManually(instance: Instance, stepPath: string, kind: "settle" | "skip"): void {
    const by = { actor: "ann", reason: "test" };
    if (this.apply(instance, { kind, stepPath, by }).ignored === undefined) instance.byHand.add(stepPath);
  }
}

function describe({ status, effects, changes }: Decision): string {
  const notes = changes.map(({ stepPath, to, note }) => [stepPath, to, note].filter(Boolean).join(" "));
  const sent = effects.map((effect) => ("id" in effect ? `${effect.kind} ${effect.id}` : effect.kind));
  return `${status} [${notes.join("; ")}] {${sent.join("; ")}}`;
}

function comparable(decision: Decision): string {
  return JSON.stringify(decision, (key, value: unknown) => {
    if (key === "command" || key === "definition") return 0;
    if (typeof value !== "object" || value === null || Array.isArray(value)) return value;
    return Object.fromEntries(Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)));
  });
}

function roundTrip<T>(value: T): T {
  return JSON.parse(JSON.stringify(value)) as T;
}

export interface Run {
  readonly violations: readonly string[];
  readonly trace: readonly string[];
  readonly taken: readonly number[];
  readonly statuses: readonly string[];
  readonly decisions: number;
  readonly reached: ReadonlySet<string>;
}

const by = { actor: "bob", reason: "test" };

/** Runs one saga to its end; then every parked step is settled by hand, which must end it. */
export function simulate(choices: Choices, engine: typeof decide = decide, tracing = false): Run {
  const generated = generateSaga(choices);
  const simulation = new Simulation(choices, generated, engine, tracing);
  simulation.start(generated.definition, { key: "k" });
  const [root] = simulation.instances.values();
  if (root !== undefined && simulation.weather > 0) {
    for (let count = choices.of([0, 0, 1, 2]); count > 0; count -= 1) {
      const kind = choices.of(["cancel", "compensate"]);
      simulation.at(simulation.delay() + simulation.delay(), () => {
        const all = [...simulation.instances.values()];
        simulation.apply(all[choices.upTo(all.length)] ?? root, { kind, by });
      });
    }
  }
  simulation.run();
  if (simulation.violations.length === 0) check(simulation);
  const statuses = [...simulation.instances.values()].map(({ status }) => status);
  if (simulation.violations.length === 0) rescue(simulation);
  const { violations, trace, decisions, reached } = simulation;
  return { violations, trace, taken: choices.taken, statuses, decisions, reached };
}

/** A parked saga is no dead end: a person who settles what is stuck brings it to its end. */
function rescue(simulation: Simulation): void {
  simulation.healed = true;
  for (let count = 0; count < 60 && simulation.violations.length === 0; count += 1) {
    const parked = [...simulation.instances.values()].find(({ status }) => status === "failed");
    if (parked === undefined) break;
    const before = parked.version;
    for (const stepPath of parked.incidents[0] ?? []) simulation.decideManually(parked, stepPath, "settle");
    if (parked.version === before) break;
    simulation.run();
  }
  for (const { id, status } of simulation.instances.values()) {
    if (!hasEnded(status)) simulation.complain(`${id}: no operator can end it: it is ${status}`);
  }
}

/** What went wrong, in the plainest way that was found. */
export function explain(seed: number, engine: typeof decide = decide): string {
  const first = simulate(Choices.fromSeed(seed), engine);
  const fails = (given: readonly number[]): boolean => {
    const { violations } = simulate(new Choices(given), engine);
    return violations.length > 0 && classifyComplaint(violations) === classifyComplaint(first.violations);
  };
  const plain = fails(first.taken) ? shrink(first.taken, fails) : first.taken;
  const { trace, violations } = simulate(new Choices(plain), engine, true);
  return [
    `seed ${seed}: ${first.violations.join(" · ")}`,
    `shrunk: ${violations.join(" · ")}`,
    ...trace,
  ].join("\n");
}

/** A violation without its names and numbers. */
export function classifyComplaint([first = ""]: readonly string[]): string {
  return first.replaceAll(/\b[a-z]\d+(\.m\d+)?(@[\d.]+)?/g, "_").replaceAll(/(?<!I-|S-)\b\d+\b/g, "n");
}
