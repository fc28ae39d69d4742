import { decide, hasEnded } from "../../../src/saga/index.ts";
import { check } from "./check.ts";
import { Choices, shrink } from "./choices.ts";
import { generateSaga } from "./generate-saga.ts";
import { Simulation } from "./simulation.ts";

export interface Run {
  readonly violations: readonly string[];
  readonly trace: readonly string[];
  readonly taken: readonly number[];
  readonly statuses: readonly string[];
  readonly decisions: number;
  readonly reached: ReadonlySet<string>;
}

const by = { actor: "bob", reason: "test" };

/** One saga from its first to its last moment; then whatever is parked is settled by hand, which must end it. */
export function simulate(choices: Choices, engine: typeof decide = decide, tracing = false): Run {
  const generated = generateSaga(choices);
  const world = new Simulation(choices, generated, engine, tracing);
  world.start(generated.definition, { key: "k" });
  const [root] = world.instances.values();
  if (root !== undefined && world.weather > 0) {
    for (let count = choices.of([0, 0, 1, 2]); count > 0; count -= 1) {
      const kind = choices.of(["cancel", "compensate"]);
      world.at(world.delay() + world.delay(), () => {
        const all = [...world.instances.values()];
        world.apply(all[choices.upTo(all.length)] ?? root, { kind, by });
      });
    }
  }
  world.run();
  if (world.violations.length === 0) check(world);
  const statuses = [...world.instances.values()].map(({ status }) => status);
  if (world.violations.length === 0) rescue(world);
  const { violations, trace, decisions, reached } = world;
  return { violations, trace, taken: choices.taken, statuses, decisions, reached };
}

/** A parked saga is no dead end: a person who settles what is stuck brings it to its end. */
function rescue(world: Simulation): void {
  world.healed = true;
  for (let count = 0; count < 60 && world.violations.length === 0; count += 1) {
    const parked = [...world.instances.values()].find(({ status }) => status === "failed");
    if (parked === undefined) break;
    const before = parked.version;
    for (const place of parked.incidents[0] ?? []) world.decideManually(parked, place, "settle");
    if (parked.version === before) break;
    world.run();
  }
  for (const { id, status } of world.instances.values()) {
    if (!hasEnded(status)) world.complain(`${id}: nobody can bring it to an end: it is ${status}`);
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
