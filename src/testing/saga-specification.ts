import { AssertionError } from "node:assert";
import { inspect, isDeepStrictEqual } from "node:util";
import type { Duration } from "../errors/index.ts";
import type { AnyCommand, AnyEvent, GivenInput, InputOf, Json } from "../message/index.ts";
import { milliseconds } from "../options/index.ts";
import type { SagaDefinition, SagaStatus, WorkOutcome } from "../saga/index.ts";
import { type SentCommand, SimulatedSaga } from "./simulated-saga.ts";

interface AnySaga<I, R> {
  readonly definition: SagaDefinition;
  readonly "~saga": { readonly input: I; readonly results: R };
}

/**
 * Tests a saga as a scenario without a database: `given` its input, `when` something happens, `expect` the result. It
 * runs the same decision function as production. Time passes only in `after`.
 */
export function sagaSpecification<I, R>(
  saga: AnySaga<I, R>,
): { readonly given: (input: GivenInput<I>) => SagaScenario<R> } {
  return { given: (input) => new SagaScenario<R>(new SimulatedSaga(saga.definition, input)) };
}

const TEN_YEARS_MS = 3_650 * 86_400_000;

/** A scenario in its current state. */
export class SagaScenario<R> {
  readonly #saga: SimulatedSaga;

  constructor(saga: SimulatedSaga) {
    this.#saga = saga;
  }

  /** What happens next. */
  get when(): ScenarioEvents<R> {
    return new ScenarioEvents(this, this.#saga);
  }

  /** Expectations about the effects of the last event and the current state. */
  get expect(): SagaExpectations<R> {
    return new SagaExpectations(this, this.#saga);
  }

  /** Lets time pass (a duration or milliseconds): timeouts, retries and deadlines take effect in order. */
  after(time: Duration | number): this {
    this.#saga.advance(`after ${time}`, milliseconds("after", time, { max: TEN_YEARS_MS }));
    return this;
  }
}

const operator = { actor: "test", reason: "test" };

/** The events of a scenario. */
export class ScenarioEvents<R> {
  readonly #scenario: SagaScenario<R>;
  readonly #saga: SimulatedSaga;

  constructor(scenario: SagaScenario<R>, saga: SimulatedSaga) {
    this.#scenario = scenario;
    this.#saga = saga;
  }

  /** A step succeeds, in time or late: a reply arrives, a function returns, or a child saga completes. */
  done<N extends StepName<R>>(step: N, ...[result]: ResultAt<R, N>): SagaScenario<R> {
    return this.#applyOutcome(`${step} is done`, step, false, {
      kind: "done",
      result: result as Json | undefined,
    });
  }

  /** A step is refused for a business reason: it had no effect, and is not retried. */
  refused(step: StepName<R>, reason = "refused"): SagaScenario<R> {
    return this.#applyOutcome(`${step} is refused`, step, false, { kind: "refused", error: reason });
  }

  /** A step fails, but may have had its effect. It is retried unless `permanent` is true. */
  failed(step: StepName<R>, { permanent = false, error = "failed" } = {}): SagaScenario<R> {
    return this.#applyOutcome(`${step} fails`, step, false, { kind: "failed", error, permanent });
  }

  /** An undo succeeds, or finds nothing to undo. */
  undone(step: StepName<R>): SagaScenario<R> {
    return this.#applyOutcome(`${step} is undone`, step, true, { kind: "done" });
  }

  /** An undo fails. It is retried unless `permanent` is true. */
  undoFailed(step: StepName<R>, { permanent = false, error = "failed" } = {}): SagaScenario<R> {
    return this.#applyOutcome(`the undo of ${step} fails`, step, true, { kind: "failed", error, permanent });
  }

  /** An event arrives, whether or not a step waits for it yet. Throws if its key is not the saga's key. */
  occurs<E extends AnyEvent>(event: E, data: InputOf<E>): SagaScenario<R> {
    this.#saga.move(`"${event.name}" occurs`, [this.#saga.toEventInput(event, data)]);
    return this.#scenario;
  }

  /** The success of a step is reported a second time, as after a redelivery. */
  doneAgain(step: StepName<R>): SagaScenario<R> {
    const { result } = this.#saga.findRecord(step);
    return this.#applyOutcome(`${step} is done again`, step, false, { kind: "done", result });
  }

  /** An operator cancels the saga. */
  cancelled(): SagaScenario<R> {
    this.#saga.move("an operator cancels it", [{ kind: "cancel", by: operator }]);
    return this.#scenario;
  }

  /** An operator compensates the saga, even if it has completed. */
  compensated(): SagaScenario<R> {
    this.#saga.move("an operator compensates it", [{ kind: "compensate", by: operator }]);
    return this.#scenario;
  }

  /** An operator retries a step, or all stuck steps if none is given. */
  retried(step?: StepName<R>): SagaScenario<R> {
    if (step !== undefined) this.#saga.checkStep(step);
    const stepPath = step === undefined ? {} : { stepPath: step };
    this.#saga.move(`an operator retries ${step ?? "it"}`, [{ kind: "retry", ...stepPath, by: operator }]);
    return this.#scenario;
  }

  /** An operator skips a step. */
  skipped(step: StepName<R>): SagaScenario<R> {
    this.#saga.checkStep(step);
    this.#saga.move(`an operator skips ${step}`, [{ kind: "skip", stepPath: step, by: operator }]);
    return this.#scenario;
  }

  /** An operator settles a step, or its undo, as done by hand. */
  settled<N extends StepName<R>>(step: N, result?: ResultAt<R, N>[0]): SagaScenario<R> {
    this.#saga.checkStep(step);
    const resultField = result === undefined ? {} : { result: result as Json };
    this.#saga.move(`an operator settles ${step}`, [
      { kind: "settle", stepPath: step, ...resultField, by: operator },
    ]);
    return this.#scenario;
  }

  #applyOutcome(what: string, step: string, undo: boolean, outcome: WorkOutcome): SagaScenario<R> {
    this.#saga.move(what, [this.#saga.toOutcomeInput(step, undo, outcome)]);
    return this.#scenario;
  }
}

/** The expectations of a scenario. Each throws an AssertionError with the events so far. */
export class SagaExpectations<R> {
  readonly #scenario: SagaScenario<R>;
  readonly #saga: SimulatedSaga;
  readonly #left: SentCommand[];

  constructor(scenario: SagaScenario<R>, saga: SimulatedSaga) {
    this.#scenario = scenario;
    this.#saga = saga;
    this.#left = [...saga.sentCommands()];
  }

  get when(): ScenarioEvents<R> {
    return this.#scenario.when;
  }

  after(time: Duration | number): SagaScenario<R> {
    return this.#scenario.after(time);
  }

  /** The last event caused this command, with this data if given. */
  sent<C extends AnyCommand>(command: C, data?: InputOf<C>): this {
    const index = this.#left.findIndex(
      (one) => one.command.name === command.name && (data === undefined || isDeepStrictEqual(one.data, data)),
    );
    if (index === -1) {
      const other = this.#left.find((one) => one.command.name === command.name);
      if (other !== undefined) {
        const [was, wanted] = [other.data, data].map((one) =>
          inspect(one, { depth: null, breakLength: Infinity }),
        );
        this.#fail(`"${command.name}" was sent with other data: ${was}, not ${wanted}`, other.data, data);
      }
      const actual = this.#left.map((one) => ({ command: one.command.name, data: one.data }));
      this.#fail(`"${command.name}" was not sent`, actual, { command: command.name, data });
    }
    this.#left.splice(index, 1);
    return this;
  }

  /** The last event caused no commands other than those expected before. */
  sentNothingElse(): this {
    const names = this.#left.map((one) => one.command.name);
    if (names.length > 0) this.#fail(`${names.join(", ")} was sent too`, names, []);
    return this;
  }

  /** Exactly these steps are in progress. */
  waitsFor(...steps: StepName<R>[]): this {
    for (const step of steps) this.#saga.checkStep(step);
    const open = this.#findSteps(({ status }) => status === "in_progress");
    if (!isDeepStrictEqual(open.toSorted(), [...steps].toSorted())) {
      this.#fail(`it waits for ${open.join(", ") || "nothing"}`, open, steps);
    }
    return this;
  }

  /** Exactly these steps are being undone. */
  undoes(...steps: StepName<R>[]): this {
    for (const step of steps) this.#saga.checkStep(step);
    const open = this.#findSteps(({ undo }) => undo?.status === "in_progress");
    if (!isDeepStrictEqual(open.toSorted(), [...steps].toSorted())) {
      this.#fail(`it undoes ${open.join(", ") || "nothing"}`, open, steps);
    }
    return this;
  }

  status(expected: SagaStatus): this {
    const { status } = this.#saga;
    if (status !== expected) this.#fail(`it is ${status}`, status, expected);
    return this;
  }

  completed(): this {
    return this.status("completed");
  }

  /** The saga has ended, and all its steps are undone. */
  compensated(): this {
    return this.status("compensated");
  }

  /** The saga cannot continue, and an incident is open for exactly these steps. */
  parked(...steps: StepName<R>[]): this {
    for (const step of steps) this.#saga.checkStep(step);
    this.status("failed");
    const { incident } = this.#saga;
    if (!isDeepStrictEqual([...incident].toSorted(), [...steps].toSorted())) {
      this.#fail(`the incident is about ${incident.join(", ")}`, incident, steps);
    }
    return this;
  }

  /** The last event changed nothing. If `reason` is given, the actual reason contains it. */
  ignored(reason = ""): this {
    const { ignored } = this.#saga;
    if (ignored === undefined) this.#fail("it was not ignored", undefined, reason);
    else if (!ignored.includes(reason)) this.#fail(`it was ignored because ${ignored}`, ignored, reason);
    return this;
  }

  #findSteps(wanted: (record: ReturnType<SimulatedSaga["findRecord"]>) => boolean): string[] {
    return Object.entries(this.#saga.state.records)
      .filter(([, record]) => wanted(record))
      .map(([step]) => step);
  }

  #fail(what: string, actual: unknown, expected: unknown): never {
    const message = `${what}. ${this.#saga.describeHistory()}`;
    throw new AssertionError({ message, actual, expected, operator: "expect" });
  }
}

type Text<K> = K & string;
type Members<G> = G extends Readonly<Record<string, unknown>> ? Text<keyof G> : never;

/** The steps of a saga: by name, by group and name, or by name and round (`"ask@2"`). */
export type StepName<R> =
  | Text<keyof R>
  | { [G in Text<keyof R>]: `${G}.${Members<NonNullable<R[G]>>}` }[Text<keyof R>]
  | `${string}@${number}`;

type At<R, N extends string> = N extends `${infer P}@${number}`
  ? At<R, P>
  : N extends keyof R
    ? R[N]
    : N extends `${infer G}.${infer M}`
      ? G extends keyof R
        ? M extends keyof NonNullable<R[G]>
          ? NonNullable<R[G]>[M]
          : never
        : never
      : never;

/** The result parameter of a step; optional for a step without a result. */
export type ResultAt<R, N extends string> =
  // oxlint-disable-next-line typescript/no-invalid-void-type -- a step whose function returns nothing
  undefined extends At<R, N> ? [result?: At<R, N>] : [At<R, N>] extends [void] ? [] : [result: At<R, N>];
