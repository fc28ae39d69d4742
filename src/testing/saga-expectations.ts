import { AssertionError } from "node:assert";
import { inspect, isDeepStrictEqual } from "node:util";
import type { Duration } from "../errors/index.ts";
import type { AnyCommand, InputOf } from "../message/index.ts";
import type { SagaStatus } from "../saga/index.ts";
import type { StepName } from "./saga-names.ts";
import type { ScenarioEvents, SagaScenario } from "./saga-specification.ts";
import type { SentCommand, SimulatedSaga } from "./simulated-saga.ts";

/** What a story may expect. Each throws an AssertionError that tells the story so far. */
export class SagaExpectations<R> {
  readonly #story: SagaScenario<R>;
  readonly #saga: SimulatedSaga;
  readonly #left: SentCommand[];

  constructor(story: SagaScenario<R>, saga: SimulatedSaga) {
    this.#story = story;
    this.#saga = saga;
    this.#left = [...saga.sentCommands()];
  }

  get when(): ScenarioEvents<R> {
    return this.#story.when;
  }

  after(time: Duration | number): SagaScenario<R> {
    return this.#story.after(time);
  }

  /** A command followed from what happened last; with this data, if they are given. */
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

  /** No command but those expected before. */
  sentNothingElse(): this {
    const names = this.#left.map((one) => one.command.name);
    if (names.length > 0) this.#fail(`${names.join(", ")} was sent too`, names, []);
    return this;
  }

  /** These steps are under way, and no others. */
  waitsFor(...steps: StepName<R>[]): this {
    for (const step of steps) this.#saga.checkStep(step);
    const open = this.#places(({ status }) => status === "in_progress");
    if (!isDeepStrictEqual(open.toSorted(), [...steps].toSorted())) {
      this.#fail(`it waits for ${open.join(", ") || "nothing"}`, open, steps);
    }
    return this;
  }

  /** These steps are being undone in this moment, and no others. */
  undoes(...steps: StepName<R>[]): this {
    for (const step of steps) this.#saga.checkStep(step);
    const open = this.#places(({ undo }) => undo?.status === "in_progress");
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

  /** Ended, with everything undone. */
  compensated(): this {
    return this.status("compensated");
  }

  /** It cannot go on: a person is called for these steps. */
  parked(...steps: StepName<R>[]): this {
    for (const step of steps) this.#saga.checkStep(step);
    this.status("failed");
    const { incident } = this.#saga;
    if (!isDeepStrictEqual([...incident].toSorted(), [...steps].toSorted())) {
      this.#fail(`a person is called for ${incident.join(", ")}`, incident, steps);
    }
    return this;
  }

  /** What happened last changed nothing; for a reason that holds this text, if one is given. */
  ignored(reason = ""): this {
    const { ignored } = this.#saga;
    if (ignored === undefined) this.#fail("it was not ignored", undefined, reason);
    else if (!ignored.includes(reason)) this.#fail(`it was ignored because ${ignored}`, ignored, reason);
    return this;
  }

  #places(wanted: (record: ReturnType<SimulatedSaga["findRecord"]>) => boolean): string[] {
    return Object.entries(this.#saga.state.records)
      .filter(([, record]) => wanted(record))
      .map(([place]) => place);
  }

  #fail(what: string, actual: unknown, expected: unknown): never {
    const message = `${what}. ${this.#saga.describeHistory()}`;
    throw new AssertionError({ message, actual, expected, operator: "expect" });
  }
}
