export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** Linear between neighbours, so that a median of two is their mean. */
export function quantile(values: readonly number[], share: number): number {
  const sorted = values.toSorted((a, b) => a - b);
  const place = (sorted.length - 1) * share;
  const below = sorted[Math.floor(place)] ?? Number.NaN;
  const above = sorted[Math.ceil(place)] ?? Number.NaN;
  return below + (above - below) * (place - Math.floor(place));
}

export interface Ratio {
  readonly ratio: number;
  readonly spread: readonly [min: number, max: number];
}

/** One ratio for each round, then their median: what the machine did in a round it did to both. */
export function computeRatio(ours: readonly number[], theirs: readonly number[]): Ratio {
  return summary(ours.map((value, round) => value / (theirs[round] ?? Number.NaN)));
}

export function summary(values: readonly number[]): Ratio {
  return { ratio: median(values), spread: [Math.min(...values), Math.max(...values)] };
}

export function round(value: number, digits = 3): number {
  return Number(value.toPrecision(Math.max(digits, Math.ceil(Math.log10(Math.abs(value) + 1)))));
}
