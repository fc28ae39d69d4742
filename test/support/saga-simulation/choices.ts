import { seededRandom } from "../seeded-random.ts";

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

/** The plainest list of choices that still fails, within so many tries. */
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
