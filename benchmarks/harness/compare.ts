import type { Bench } from "./bench.ts";
import { round } from "./statistics.ts";

/** One measurement of one contender: prepares, measures, cleans up; answers a rate or a time. */
export type Contender = (run: { readonly warmUp: boolean; readonly round: number }) => Promise<number>;

/**
 * Every round runs every contender once, beginning with another one each time, so that a busy or a cool machine is
 * the same for all of them. A first round that does not count warms up code, plans and caches.
 */
export async function compare<Name extends string>(
  bench: Bench,
  title: string,
  contenders: Readonly<Record<Name, Contender>>,
): Promise<Record<Name, number[]>> {
  const names = Object.keys(contenders) as Name[];
  const samples = Object.fromEntries(names.map((name) => [name, [] as number[]])) as Record<Name, number[]>;
  for (const name of names) await contenders[name]({ warmUp: true, round: -1 });
  for (let turn = 0; turn < bench.rounds; turn++) {
    for (const [place] of names.entries()) {
      const name = names[(place + turn) % names.length];
      if (name === undefined) continue;
      samples[name].push(await contenders[name]({ warmUp: false, round: turn }));
    }
    const figures = names.map((name) => `${name} ${round(samples[name].at(-1) ?? Number.NaN)}`);
    bench.say(`${title}: round ${turn + 1} of ${bench.rounds}: ${figures.join(", ")}`);
  }
  return samples;
}
