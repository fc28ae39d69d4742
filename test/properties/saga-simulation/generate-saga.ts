import { command, event } from "sagabox";
import { z } from "zod";
import { saga, type SagaDefinition } from "../../../src/saga/index.ts";
import { seededRandom } from "../../support/random-data.ts";

/** Every chance that is taken, as a list that can be played again, cut short and made plainer: nought is the plainest. */
export class Choices {
  readonly taken: number[] = [];
  readonly #given: readonly number[];
  readonly #random: () => number;

  constructor(given: readonly number[], random: () => number = () => 0) {
    this.#given = given;
    this.#random = random;
  }

  static fromSeed(seed: number): Choices {
    return new Choices([], seededRandom(seed));
  }

  /** A whole number from nought up to, and without, `count`. */
  upTo(count: number): number {
    const given = this.#given[this.taken.length];
    const drawn = given === undefined ? Math.floor(this.#random() * count) : Math.min(given, count - 1);
    this.taken.push(drawn);
    return drawn;
  }

  chance(percent: number): boolean {
    return this.upTo(100) >= 100 - percent;
  }

  of<const T>(options: readonly [T, ...T[]]): T {
    return options[this.upTo(options.length)] ?? options[0];
  }
}

/** Returns the simplest list of choices that still fails, within this many tries. */
export function shrink(
  failing: readonly number[],
  fails: (given: readonly number[]) => boolean,
  tries = 400,
): readonly number[] {
  let [best, left] = [failing.slice(), tries];
  const better = (candidate: number[]): boolean => {
    if (left <= 0) return false;
    left -= 1;
    if (!fails(candidate)) return false;
    best = candidate;
    return true;
  };
  for (let size = best.length; size >= 1 && left > 0; size = Math.floor(size / 2)) {
    for (let at = 0; at < best.length && left > 0;) {
      const [head, tail] = [best.slice(0, at), best.slice(at + size)];
      if (better([...head, ...tail])) continue;
      const plain = best.slice(at, at + size);
      if (plain.some((one) => one !== 0)) better([...head, ...plain.map(() => 0), ...tail]);
      at += size;
    }
  }
  return best;
}

/**
 * How a participant recognises repeated commands: `ours` by message ids, as our consumers do; `keyed` by the business key,
 * also what was taken back before it came; `plain` by the key too, but it does what comes after its undo.
 */
export type Participant = "ours" | "keyed" | "plain";

export interface Generated {
  readonly definition: SagaDefinition;
  /** By the path of the step, in any saga of the family. */
  readonly participants: ReadonlyMap<string, Participant>;
}

const any = z.object({ key: z.string().optional(), other: z.string().optional() });
/** Each has two keys, and a step that waits for it goes by one of them. */
export const events = ["a", "b"].map((name) =>
  event(`sim.${name}`, { schema: any, key: ({ key }) => key ?? "" }),
);
const byOther = { by: ({ other }: { other?: string }) => other ?? "" };
const Do = command("sim.do", { schema: any, reply: any });
const Undo = command("sim.undo", { schema: any });

type Fn = (seen: { steps: Record<string, unknown>; sagaId: string }) => unknown;

/** The builder with its types forgotten, as a program sees it that makes definitions by chance. */
interface Loose {
  readonly definition: SagaDefinition;
  send(name: string, command: unknown, data: Fn, options: object): LooseStep & Loose;
  run(name: string, work: Fn, options: object): LooseStep & Loose;
  tx(name: string, work: Fn, options: object): LooseStep & Loose;
  child(name: string, saga: unknown, input: Fn, options: object): LooseStep & Loose;
  waitFor(name: string, event: unknown, options: object): Loose;
  delay(name: string, time: number): Loose;
  all(name: string, group: (g: LooseGroup) => unknown, options: object): Loose;
  any(name: string, group: (g: LooseGroup) => unknown): Loose;
  when(name: string, test: Fn, then: (s: Loose) => Loose): Loose;
  choose(name: string, which: Fn, ways: Record<string, (s: Loose) => Loose>): Loose;
  repeat(name: string, body: (s: Loose) => Loose, until: Fn, options: { max: number }): Loose;
}
interface LooseStep {
  undo(...given: unknown[]): Loose;
  undoChild(): Loose;
  noUndo(reason: string): Loose;
  pivot(): Loose;
}
interface LooseGroup {
  send(name: string, command: unknown, data: Fn, options: object): LooseGroup;
  run(name: string, work: Fn, options: object): LooseGroup;
}

interface Place {
  readonly forward: boolean;
  readonly depth: number;
  /** The first step of a repeated block says in which round it is. */
  readonly roundOf?: string;
}

const simple = ["send", "run", "tx", "wait", "delay", "child"] as const;
const blocks = ["all", "any", "when", "choose", "repeat"] as const;

/** A saga of 1 to 12 steps of all kinds. */
export function generateSaga(choices: Choices): Generated {
  const participants = new Map<string, Participant>();
  const make = new Maker(choices, participants);
  return { definition: make.saga(1 + choices.upTo(12), choices.chance(50)), participants };
}

class Maker {
  readonly #choices: Choices;
  readonly #participants: Map<string, Participant>;
  #names = 0;
  #left = 0;
  #sagas = 0;

  constructor(choices: Choices, participants: Map<string, Participant>) {
    this.#choices = choices;
    this.#participants = participants;
  }

  saga(steps: number, mayPivot: boolean): SagaDefinition {
    const c = this.#choices;
    const outer = this.#left;
    this.#left = steps;
    const deadline = c.chance(12) ? { deadline: c.of([20_000, 60_000, 300_000]) } : {};
    const options = { version: 1, input: any, key: (i: { key?: unknown }) => String(i.key), ...deadline };
    const level = (this.#sagas += 1);
    let built = saga(`sim-${level}`, options as never) as unknown as Loose;
    let forward = false;
    while (this.#left > 0) {
      if (mayPivot && !forward && c.chance(20)) {
        built = this.#pivot(built, level);
        forward = true;
      } else built = this.#node(built, { forward, depth: level > 1 ? 1 : 0 });
    }
    this.#left = outer;
    return built.definition;
  }

  #pivot(built: Loose, level: number): Loose {
    const c = this.#choices;
    const name = this.#name("p");
    this.#left -= 1;
    const kind = level === 1 && c.chance(10) ? "child" : c.of(["send", "run", "tx"]);
    if (kind === "child") return built.child(name, this.#child(true), childInput(name), {}).pivot();
    if (kind === "tx") return built.tx(name, noWork, this.#retry()).pivot();
    this.#participants.set(name, c.of(["ours", "keyed"]));
    return this.#begin(built, name, kind, this.#retry()).pivot();
  }

  #node(built: Loose, place: Place): Loose {
    const c = this.#choices;
    if (place.depth < 2 && c.chance(25)) return this.#block(built, place);
    return this.#step(built, c.of(simple), place);
  }

  #step(built: Loose, kind: (typeof simple)[number], place: Place): Loose {
    const c = this.#choices;
    const name = place.roundOf ?? this.#name("s");
    this.#left -= 1;
    if (kind === "delay") return built.delay(name, c.of([1_000, 60_000]));
    if (kind === "wait") {
      const onTimeout = c.of(["fail", "continue"]);
      return built.waitFor(name, c.of([events[0], events[1]]), {
        timeout: c.of([60_000, 5_000, 300_000]),
        onTimeout,
        ...(this.#names % 2 === 0 ? byOther : {}),
      });
    }
    if (kind === "child") {
      if (place.depth > 0 || this.#sagas > 2) return built.delay(name, 1_000);
      const lasting = place.forward || c.chance(20);
      const step = built.child(
        name,
        this.#child(lasting),
        childInput(name),
        c.chance(15) ? { timeout: 40_000 } : {},
      );
      if (place.forward) return step;
      return lasting ? step.noUndo("it lasts") : step.undoChild();
    }
    if (kind === "tx") {
      const step = built.tx(name, noWork, this.#retry());
      return place.forward ? step : this.#undone(step, name, kind);
    }
    const step = this.#begin(built, name, kind, this.#retry());
    return place.forward ? this.#lasting(step, name) : this.#undone(step, name, kind);
  }

  #begin(built: Loose, name: string, kind: "send" | "run", retry: object): LooseStep & Loose {
    const options = { timeout: this.#choices.of([30_000, 5_000, 1_000]), ...retry };
    return kind === "send" ? built.send(name, Do, this.#data(), options) : built.run(name, noWork, options);
  }

  #lasting(step: Loose, name: string): Loose {
    this.#participants.set(name, this.#choices.of(["ours", "keyed"]));
    return step;
  }

  #undone(step: LooseStep, name: string, kind: "send" | "run" | "tx"): Loose {
    const c = this.#choices;
    if (c.chance(8)) {
      this.#participants.set(name, "keyed");
      return step.noUndo("nothing to do");
    }
    const byCommand = c.chance(kind === "send" ? 80 : 20);
    const options = { retry: { maxAttempts: 1 + c.upTo(3) } };
    this.#participants.set(name, this.#participant(kind, byCommand));
    return byCommand ? step.undo(Undo, this.#data(), options) : step.undo(noWork, options);
  }

  #participant(kind: "send" | "run" | "tx", byCommand: boolean): Participant {
    return kind === "send" && byCommand
      ? this.#choices.of(["ours", "keyed", "plain"])
      : this.#choices.of(["keyed", "plain"]);
  }

  #block(built: Loose, place: Place): Loose {
    const c = this.#choices;
    const kind = c.of(blocks);
    const name = this.#name("b");
    const inner = (s: Loose): Loose => this.#some(s, { forward: place.forward, depth: place.depth + 1 });
    switch (kind) {
      case "all":
        return built.all(name, this.#group(name, place), { whenOneFails: c.of(["finish", "abandon"]) });
      case "any":
        return built.any(name, this.#group(name, place));
      case "when": {
        const taken = !c.chance(40);
        return built.when(name, () => taken, inner);
      }
      case "choose": {
        const chosen = c.of(["x", "y", null, "none such"]);
        return built.choose(name, () => chosen, { x: inner, y: inner });
      }
      case "repeat": {
        const first = this.#name("r");
        const rounds = 1 + c.upTo(4);
        const body = (s: Loose): Loose => {
          const kindOf = c.of(["run", "send", "tx"]);
          const begun = this.#step(s, kindOf, { ...place, depth: place.depth + 1, roundOf: first });
          return c.chance(50) ? inner(begun) : begun;
        };
        return built.repeat(name, body, ({ steps }) => roundIn(steps[first], 1_000) >= rounds, {
          max: 2 + c.upTo(2),
        });
      }
    }
  }

  #some(built: Loose, place: Place): Loose {
    let steps = built;
    for (let count = 1 + this.#choices.upTo(2); count > 0; count -= 1) steps = this.#node(steps, place);
    return steps;
  }

  #group(group: string, { forward }: Place): (g: LooseGroup) => unknown {
    const c = this.#choices;
    const size = 1 + c.upTo(4);
    this.#left -= size;
    return (g) => {
      for (let nr = 1; nr <= size; nr += 1) {
        const [name, kind] = [`m${nr}`, c.of(["send", "run"])];
        const path = `${group}.${name}`;
        const options = {
          timeout: c.of([30_000, 5_000]),
          ...this.#retry(),
          ...this.#memberUndo(path, kind, forward),
        };
        if (kind === "send") g.send(name, Do, this.#data(), options);
        else g.run(name, noWork, options);
      }
    };
  }

  #memberUndo(path: string, kind: "send" | "run", forward: boolean): object {
    const c = this.#choices;
    if (forward || c.chance(8)) {
      this.#participants.set(path, "keyed");
      return forward ? {} : { undo: { none: "nothing to do" } };
    }
    const byCommand = c.chance(kind === "send" ? 80 : 20);
    this.#participants.set(path, this.#participant(kind, byCommand));
    return { undo: byCommand ? [Undo, this.#data()] : noWork };
  }

  #child(mayPivot: boolean): { readonly definition: SagaDefinition } {
    return { definition: this.saga(1 + this.#choices.upTo(4), mayPivot) };
  }

  #retry(): object {
    const c = this.#choices;
    return c.chance(60) ? { retry: { maxAttempts: 1 + c.upTo(3) } } : {};
  }

  /** Now and then a function of the definition is wrong. */
  #data(): Fn {
    return this.#choices.chance(2) ? broken : () => ({});
  }

  #name(prefix: string): string {
    return `${prefix}${(this.#names += 1)}`;
  }
}

const noWork = (): undefined => undefined;
const broken = (): never => {
  throw new Error("a mistake in the definition");
};
const childInput =
  (name: string): Fn =>
  ({ sagaId, steps }) => ({
    key: `${sagaId}/${name}/${Math.max(0, ...Object.values(steps).map((one) => roundIn(one, 0)))}`,
  });

function roundIn(result: unknown, otherwise: number): number {
  return (result as { round?: number } | null)?.round ?? otherwise;
}
