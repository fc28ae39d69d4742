/** A part of a replay: so many letters at this pace, and then a look at what came of all of them. */
export interface Stage {
  readonly name: "canary" | "ramp" | "rest";
  readonly perSecond: number;
  readonly letters: number;
}

/** How long a stage of the ramp lasts at its pace. */
const RAMP_SECONDS = 1;
const RAMP = [8, 4, 2] as const;

/** A few letters first, then an eighth, a quarter and half of the rate for a second each, then the rate. */
export function planStages({
  canary,
  rate,
}: {
  readonly canary: number;
  readonly rate: number;
}): readonly Stage[] {
  const ramp = RAMP.map((share): Stage => {
    const perSecond = Math.max(1, rate / share);
    return { name: "ramp", perSecond, letters: Math.ceil(perSecond * RAMP_SECONDS) };
  }).filter(({ perSecond }) => perSecond < rate);
  const rest: Stage = { name: "rest", perSecond: rate, letters: Number.POSITIVE_INFINITY };
  return [{ name: "canary", perSecond: rate, letters: canary }, ...ramp, rest];
}

/** How many letters one transaction takes at this pace: ten times a second, and never very many. */
export function chunkSize({ perSecond }: Stage): number {
  return Math.max(1, Math.min(200, Math.ceil(perSecond / 10)));
}

/** How many may be on their way: two seconds' worth. A consumer that is slower than the rate sets the pace. */
export function maxInFlight({ perSecond }: Stage): number {
  return Math.max(10, Math.min(2_000, Math.ceil(perSecond * 2)));
}
