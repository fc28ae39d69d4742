import type { Duration } from "../errors/index.ts";
import type { AnyEvent, InputOf, Json } from "../message/index.ts";
import { milliseconds } from "../options/index.ts";
import type { SagaDefinition, WorkOutcome } from "../saga/index.ts";
import { SagaExpectations } from "./saga-expectations.ts";
import type { ResultAt, StepName } from "./saga-names.ts";
import { SimulatedSaga } from "./simulated-saga.ts";

interface AnySaga<I, R> {
  readonly definition: SagaDefinition;
  readonly "~saga": { readonly input: I; readonly results: R };
}

/**
 * A saga told as a story, without a database: `given` its input, `when` something happens, `expect` what follows from
 * it. It runs the very function that decides in production; time passes only when the story says so.
 */
export function sagaSpecification<I, R>(
  saga: AnySaga<I, R>,
): { readonly given: (input: I) => SagaScenario<R> } {
  return { given: (input) => new SagaScenario<R>(new SimulatedSaga(saga.definition, input)) };
}

const TEN_YEARS_MS = 3_650 * 86_400_000;

/** Where a story stands. */
export class SagaScenario<R> {
  readonly #saga: SimulatedSaga;

  constructor(saga: SimulatedSaga) {
    this.#saga = saga;
  }

  /** Something happens. */
  get when(): ScenarioEvents<R> {
    return new ScenarioEvents(this, this.#saga);
  }

  /** What followed from it, and how things are now. */
  get expect(): SagaExpectations<R> {
    return new SagaExpectations(this, this.#saga);
  }

  /** Time passes: waits run out, tries are made again, deadlines pass, each at its moment. */
  after(time: Duration | number): this {
    this.#saga.advance(`after ${time}`, milliseconds("after", time, { max: TEN_YEARS_MS }));
    return this;
  }
}

const operator = { actor: "test", reason: "test" };

/** What can happen to a saga. Each is the next sentence of its story. */
export class ScenarioEvents<R> {
  readonly #story: SagaScenario<R>;
  readonly #saga: SimulatedSaga;

  constructor(story: SagaScenario<R>, saga: SimulatedSaga) {
    this.#story = story;
    this.#saga = saga;
  }

  /** A step succeeds, in time or late: a reply comes, a function returns, a child saga completes. */
  done<N extends StepName<R>>(step: N, ...[result]: ResultAt<R, N>): SagaScenario<R> {
    return this.#ends(`${step} is done`, step, false, { kind: "done", result: result as Json | undefined });
  }

  /** The answer is no, for reasons of the business: it was not done, and is not tried again. */
  refused(step: StepName<R>, reason = "refused"): SagaScenario<R> {
    return this.#ends(`${step} is refused`, step, false, { kind: "refused", error: reason });
  }

  /** It failed, and may have been done all the same; tried again unless it is permanent. */
  failed(step: StepName<R>, { permanent = false, error = "failed" } = {}): SagaScenario<R> {
    return this.#ends(`${step} fails`, step, false, { kind: "failed", error, permanent });
  }

  /** An undo succeeds, also by finding nothing to undo. */
  undone(step: StepName<R>): SagaScenario<R> {
    return this.#ends(`${step} is undone`, step, true, { kind: "done" });
  }

  /** An undo fails; it is tried again unless it is permanent. */
  undoFailed(step: StepName<R>, { permanent = false, error = "failed" } = {}): SagaScenario<R> {
    return this.#ends(`the undo of ${step} fails`, step, true, { kind: "failed", error, permanent });
  }

  /** An event comes, whether or not a step waits for it yet. Its key must be that of the saga. */
  occurs<E extends AnyEvent>(event: E, data: InputOf<E>): SagaScenario<R> {
    this.#saga.move(`"${event.name}" occurs`, [this.#saga.toEventInput(event, data)]);
    return this.#story;
  }

  /** The same message comes a second time. */
  doneAgain(step: StepName<R>): SagaScenario<R> {
    const { result } = this.#saga.findRecord(step);
    return this.#ends(`${step} is done again`, step, false, { kind: "done", result });
  }

  /** A person wants it to end. */
  cancelled(): SagaScenario<R> {
    this.#saga.move("a person cancels it", [{ kind: "cancel", by: operator }]);
    return this.#story;
  }

  /** A person takes it back, even if it has completed. */
  compensated(): SagaScenario<R> {
    this.#saga.move("a person compensates it", [{ kind: "compensate", by: operator }]);
    return this.#story;
  }

  /** A person has a step, or everything that is stuck, tried again. */
  retried(step?: StepName<R>): SagaScenario<R> {
    if (step !== undefined) this.#saga.checkStep(step);
    const place = step === undefined ? {} : { place: step };
    this.#saga.move(`a person retries ${step ?? "it"}`, [{ kind: "retry", ...place, by: operator }]);
    return this.#story;
  }

  /** A person decides that a step is not needed. */
  skipped(step: StepName<R>): SagaScenario<R> {
    this.#saga.checkStep(step);
    this.#saga.move(`a person skips ${step}`, [{ kind: "skip", place: step, by: operator }]);
    return this.#story;
  }

  /** A person says that a step, or its undo, was done by hand. */
  settled<N extends StepName<R>>(step: N, result?: ResultAt<R, N>[0]): SagaScenario<R> {
    this.#saga.checkStep(step);
    const given = result === undefined ? {} : { result: result as Json };
    this.#saga.move(`a person settles ${step}`, [{ kind: "settle", place: step, ...given, by: operator }]);
    return this.#story;
  }

  #ends(what: string, step: string, undo: boolean, outcome: WorkOutcome): SagaScenario<R> {
    this.#saga.move(what, [this.#saga.toOutcomeInput(step, undo, outcome)]);
    return this.#story;
  }
}
