import type { Json } from "../../src/message/index.ts";
import {
  decide,
  newState,
  type Decision,
  type SagaDefinition,
  type SagaEffect,
  type SagaInput,
  type SagaState,
  type SagaStatus,
  type WorkOutcome,
} from "../../src/saga/index.ts";
import { recordPorts } from "../../src/saga/replay-values.ts";
import type { RecordedSaga, RecordedTurn } from "../../src/saga/replay.ts";
import { listHistoryLines } from "../../src/saga/transition.ts";

export type Sent = Extract<SagaEffect, { kind: "send" }>;

/** One instance that is moved by hand, its state stored as JSON between two moves. */
export class ManualSaga {
  definition: SagaDefinition;
  readonly parent: { readonly id: string; readonly stepPath: string } | null;
  status: SagaStatus = "started";
  state: SagaState = newState();
  nowMs = 1_000_000;
  last: Decision | undefined;
  readonly effects: SagaEffect[] = [];
  #ids = 0;

  constructor({ definition }: { readonly definition: SagaDefinition }, parent: ManualSaga["parent"] = null) {
    this.definition = definition;
    this.parent = parent;
    this.move({ kind: "start" });
  }

  /** Continues the instance with another definition, as a worker with changed code does. */
  deploy({ definition }: { readonly definition: SagaDefinition }): this {
    this.definition = definition;
    return this;
  }

  /** What came of it: the new status, or why it was ignored. */
  move(input: SagaInput): string {
    const { state, status, parent, nowMs } = this;
    const newId = (): string => `m${(this.#ids += 1)}`;
    const snapshot = { id: "s1", input: { id: "o1" } as Json, status, state, parent };
    const decision = decide(this.definition, snapshot, input, { nowMs, newId, random: () => 0 });
    this.last = decision;
    if (decision.ignored !== undefined) return decision.ignored;
    this.status = decision.status;
    this.state = JSON.parse(JSON.stringify(decision.state)) as SagaState;
    this.effects.push(...decision.effects);
    return this.status;
  }

  tick(afterMs: number): string {
    this.nowMs += afterMs;
    return this.move({ kind: "tick" });
  }

  /** The commands sent so far: `do <step path>` or `undo <step path>`. */
  listSent(): string[] {
    return this.#sends().map(({ undo, stepPath }) => `${undo ? "undo" : "do"} ${stepPath}`);
  }

  /** The nth command for a step path, counted from one; the latest without it. */
  command(what: string, nth?: number): Sent {
    const found = this.#sends().filter(
      ({ undo, stepPath }) => `${undo ? "undo" : "do"} ${stepPath}` === what,
    );
    const one = found.at(nth === undefined ? -1 : nth - 1);
    if (one === undefined) throw new Error(`no command "${what}" among: ${this.listSent().join(", ")}`);
    return one;
  }

  reply(what: string, outcome: WorkOutcome = { kind: "done", result: {} }, nth?: number): string {
    return this.move({ kind: "reply", requestId: this.command(what, nth).id, outcome });
  }

  /** Local work has ended. */
  finishWork(what: string, outcome: WorkOutcome = { kind: "done", result: {} }): string {
    const [kind = "", stepPath = ""] = what.split(" ");
    const record = this.state.records[stepPath];
    const effort = kind === "undo" ? record?.undo : record;
    const { epoch = 1, attempt = 1 } = effort ?? {};
    return this.move({ kind: "worked", stepPath, undo: kind === "undo", epoch, attempt, outcome });
  }

  by(kind: "cancel" | "compensate"): string {
    return this.move({ kind, by: { actor: "ann", reason: "test" } });
  }

  applyDecision(kind: "retry" | "skip" | "settle", stepPath: string): string {
    return this.move({ kind, stepPath, by: { actor: "ann", reason: "test" } });
  }

  /** The error of the latest incident. */
  incidentError(): string | undefined {
    return this.effects.findLast((effect) => effect.kind === "open incident")?.error;
  }

  /** The steps of the open incident. */
  listIncident(): readonly string[] | undefined {
    const kinds = this.effects.filter(({ kind }) => kind.endsWith("incident"));
    const latest = kinds.at(-1);
    return latest?.kind === "open incident" ? latest.stepPaths : undefined;
  }

  step(stepPath: string): string | undefined {
    return this.state.records[stepPath]?.status;
  }

  #sends(): Sent[] {
    return this.effects.filter((effect): effect is Sent => effect.kind === "send");
  }
}

/** An input that happens this many milliseconds after the start. Its content depends on the state at that time. */
export type Turn = readonly [atMs: number, input: SagaInput | ((state: SagaState) => SagaInput)];

export const STARTED_MS = 1_767_225_600_000;

/** An instance that lived through these turns, with the history the database would have. */
export function runSaga(definition: SagaDefinition, input: RecordedSaga["input"], turns: readonly Turn[]) {
  let nr = 0;
  let state = newState();
  let status: SagaStatus = "started";
  const recorded: RecordedTurn[] = [];
  for (const [afterMs, given] of [[0, { kind: "start" }] as Turn, ...turns]) {
    const said = typeof given === "function" ? given(state) : given;
    const nowMs = STARTED_MS + afterMs;
    const { ports, drawn } = recordPorts({ nowMs, newId: () => `id-${(nr += 1)}`, random: () => 0.5 });
    const decision = decide(definition, { id: "saga-1", input, parent: null, status, state }, said, ports);
    if (decision.ignored !== undefined) continue;
    ({ state, status } = decision);
    const lines = listHistoryLines(decision.changes).map(({ event, stepPath, from, to }) => ({
      event,
      step: stepPath ?? null,
      from: from ?? null,
      to: to ?? null,
    }));
    recorded.push({ version: recorded.length + 1, atMs: nowMs + 3, input: said, drawn, lines });
  }
  const saga: RecordedSaga = {
    id: "saga-1",
    input,
    parent: null,
    status,
    state,
    version: recorded.length,
    turns: recorded,
  };
  return { ...saga, type: definition.name, key: "o1" };
}

/** A step that ended here. */
export function workInput(
  stepPath: string,
  outcome: Extract<SagaInput, { kind: "worked" }>["outcome"],
  undo = false,
) {
  return ({ records }: SagaState): SagaInput => {
    const effort = undo ? records[stepPath]?.undo : records[stepPath];
    const { epoch = 1, attempt = 1 } = effort ?? {};
    return { kind: "worked", stepPath, undo, epoch, attempt, outcome };
  };
}

/** The reply to the latest command of a step. */
export function replyInput(
  stepPath: string,
  outcome: Extract<SagaInput, { kind: "reply" }>["outcome"],
  undo = false,
) {
  return ({ records }: SagaState): SagaInput => {
    const ids = (undo ? records[stepPath]?.undo?.ids : records[stepPath]?.ids) ?? [];
    return { kind: "reply", requestId: ids.at(-1) ?? "none", outcome };
  };
}
