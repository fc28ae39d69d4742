import { SagaboxError } from "../errors/index.ts";
import { toWireData, toWireReply, type AnyEvent, type Json, wireSchema } from "../message/index.ts";
import {
  decide,
  hasEnded,
  listLocalWork,
  localTimeoutMs,
  newState,
  otherKey,
  listSteps,
  type LocalWork,
  type SagaDefinition,
  type SagaEffect,
  type SagaInput,
  type SagaState,
  type SagaStatus,
  type StepRecord,
  timeoutOutcome,
  type WorkOutcome,
} from "../saga/index.ts";

export type SentCommand = Extract<SagaEffect, { kind: "send" }>;

const START_MS = Date.UTC(2030, 0, 1);
/** A timer of the instance: when it is due, and what the saga then gets. */
interface Timer {
  readonly atMs: number;
  readonly input: SagaInput;
}

/** Almost 1, so that jittered waits have their maximum length and are predictable. */
const MAX_RANDOM = 1 - Number.EPSILON;

/** One saga instance in memory. Between two moves its state is serialized as JSON, as in the database. */
export class SimulatedSaga {
  readonly definition: SagaDefinition;
  readonly #input: Json;
  readonly #key: string;
  status: SagaStatus = "started";
  state: SagaState = newState();
  nowMs = START_MS;
  /** The effects of the last move. */
  effects: SagaEffect[] = [];
  /** Why the last move changed nothing. */
  ignored: string | undefined;
  /** The steps of the open incident. */
  incident: readonly string[] = [];
  readonly history: string[] = [];
  #ids = 0;

  constructor(definition: SagaDefinition, given: unknown) {
    this.definition = definition;
    const schema = wireSchema(definition.input, `saga "${definition.name}"`);
    const checked = schema["~standard"].validate(given);
    if (checked instanceof Promise) {
      throw testError(
        `The schema of saga "${definition.name}" is asynchronous; a scenario needs a synchronous one.`,
      );
    }
    if (checked.issues !== undefined) {
      const issues = checked.issues.map(formatIssue).join("; ");
      throw testError(`The input of saga "${definition.name}" does not match its schema: ${issues}`);
    }
    this.#input = checked.value as Json;
    this.#key = definition.key(this.#input);
    this.move("start", [{ kind: "start" }]);
  }

  /** Applies the inputs of one event of the scenario. */
  move(what: string, inputs: readonly SagaInput[]): void {
    this.effects = [];
    this.ignored = undefined;
    this.history.push(what);
    for (const input of inputs) this.#decide(input);
  }

  /** Lets time pass. Everything that becomes due meanwhile happens at its due time. */
  advance(what: string, byMs: number): void {
    const untilMs = this.nowMs + byMs;
    this.move(what, []);
    for (;;) {
      const timer = this.#findNextTimer();
      if (timer === undefined || timer.atMs > untilMs) break;
      this.nowMs = Math.max(this.nowMs, timer.atMs);
      this.#decide(timer.input);
    }
    this.nowMs = untilMs;
  }

  sentCommands(): readonly SentCommand[] {
    return this.effects.filter((effect) => effect.kind === "send");
  }

  findRecord(step: string): StepRecord {
    const record = this.state.records[step];
    if (record !== undefined) return record;
    this.checkStep(step);
    throw testError(`Step "${step}" has not begun. ${this.describeHistory()}`);
  }

  /** Throws if no step has this name. */
  checkStep(step: string): void {
    const { name, nodes } = this.definition;
    const known = listSteps(nodes).map(({ path }) => path);
    // A choice or a repetition has a record of its own only after it has failed.
    if (this.#findStep(step) !== undefined || step in this.state.records) return;
    throw testError(`Saga "${name}" has no step "${step}". Its steps: ${known.join(", ")}.`);
  }

  /** Converts an event to an input. Throws if the event is for another instance. */
  toEventInput(event: AnyEvent, data: unknown): SagaInput {
    const checked = toWireData(event, data);
    const received = { type: event.name, data: (checked instanceof Promise ? data : checked) as Json };
    const other = otherKey(this.definition, this.#key, received);
    if (other === undefined) return { kind: "event", id: this.newId(), ...received };
    throw testError(
      `"${event.name}" has the key "${other}" and would not reach this saga, whose key is "${this.#key}". ` +
        this.describeHistory(),
    );
  }

  /** Converts the outcome of a step, or of its undo, to an input for the step's kind. */
  toOutcomeInput(step: string, undo: boolean, outcome: WorkOutcome): SagaInput {
    const record = this.findRecord(step);
    const effort = undo ? record.undo : record;
    if (effort === undefined)
      throw testError(`Step "${step}" is not being undone. ${this.describeHistory()}`);
    const node = this.#findStep(step);
    const kind = undo ? node?.undo?.kind : node?.work.kind;
    const id = effort.ids.at(-1);
    if (kind === "child") {
      const end = outcome.kind === "done" && !undo ? "completed" : "compensated";
      const results = outcome.kind === "done" && outcome.result !== undefined ? outcome.result : null;
      return { kind: "child", childId: record.ids.at(-1) ?? "", end, results };
    }
    if (kind !== "send" || id === undefined) {
      const { epoch, attempt } = effort;
      return { kind: "worked", stepPath: step, undo, epoch, attempt, outcome };
    }
    if (!undo && outcome.kind === "done" && node?.work.kind === "send") {
      const result = toWireReply(node.work.command, outcome.result) as Json | undefined;
      return { kind: "reply", requestId: id, outcome: { kind: "done", result: result ?? null } };
    }
    return { kind: "reply", requestId: id, outcome };
  }

  /** Describes the events so far and the current state, for failure messages. */
  describeHistory(): string {
    const steps = Object.entries(this.state.records).map(([stepPath, { status }]) => `${stepPath} ${status}`);
    return `So far: ${this.history.join(" · ")}. It is ${this.status}: ${steps.join(", ")}.`;
  }

  newId(): string {
    this.#ids += 1;
    return `message-${this.#ids}`;
  }

  #findStep(stepPath: string) {
    const [path] = stepPath.split("@");
    return listSteps(this.definition.nodes).find((one) => one.path === path)?.step;
  }

  #decide(input: SagaInput): void {
    const { status, state, nowMs } = this;
    const snapshot = { id: "saga-1", input: this.#input, status, state, parent: null };
    const ports = { nowMs, newId: () => this.newId(), random: () => MAX_RANDOM };
    const decision = decide(this.definition, snapshot, input, ports);
    this.ignored = input.kind === "tick" ? this.ignored : decision.ignored;
    if (decision.ignored !== undefined) return;
    this.status = decision.status;
    this.state = JSON.parse(JSON.stringify(decision.state)) as SagaState;
    this.effects.push(...decision.effects);
    for (const effect of decision.effects) {
      if (effect.kind === "send") void toWireData(effect.command, effect.data);
      if (effect.kind === "open incident") this.incident = effect.stepPaths;
      if (effect.kind === "close incident") this.incident = [];
    }
  }

  /**
   * Returns the timer that is due next. The clock of the database has the timeouts of commands, waits and undo commands,
   * delays, retries and the deadline. A worker keeps the timeouts of local steps and their undos.
   */
  #findNextTimer(): Timer | undefined {
    if (hasEnded(this.status)) return undefined;
    const local = listLocalWork(this.definition, this.state, Infinity);
    const isLocal = new Set(local.map(({ stepPath }) => stepPath));
    const clock = Object.entries(this.state.records)
      .filter(([stepPath]) => !isLocal.has(stepPath))
      .map(([, record]) => (record.status === "in_progress" ? record : record.undo))
      .filter((effort) => effort?.status === "in_progress")
      .flatMap((effort) => [effort?.nextAtMs, effort?.dueAtMs])
      .concat(this.state.deadlineAtMs)
      .filter((atMs) => atMs !== undefined)
      .map((atMs): Timer => ({ atMs, input: { kind: "tick" } }));
    const timers = [...clock, ...local.map(toTimeout)];
    return timers.toSorted((a, b) => a.atMs - b.atMs)[0];
  }
}

/** The timer of a local step or undo that never ends: its attempt begins when it is due. */
function toTimeout(work: LocalWork): Timer {
  const { stepPath, undo, epoch, attempt, record } = work;
  const effort = undo ? record.undo : record;
  const atMs = (effort?.nextAtMs ?? 0) + localTimeoutMs(work);
  return { atMs, input: { kind: "worked", stepPath, undo, epoch, attempt, outcome: timeoutOutcome(work) } };
}

interface Issue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

function formatIssue({ path = [], message }: Issue): string {
  const where = path.map((part) => String(typeof part === "object" ? part.key : part)).join(".");
  return where === "" ? message : `${where}: ${message}`;
}

export function testError(text: string): SagaboxError {
  return new SagaboxError("OPTIONS_INVALID", text);
}
