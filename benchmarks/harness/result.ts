import { round, type Ratio } from "./statistics.ts";
import { targets, type Target, type TargetId } from "./targets.ts";

export type Detail = Readonly<Record<string, number | string>>;

export interface Result {
  readonly id: TargetId;
  readonly name: string;
  readonly ratio: number;
  readonly spread: readonly [min: number, max: number];
  readonly first: number | null;
  readonly aim: number | null;
  readonly better: Target["better"];
  readonly ok: boolean;
  /** Figures beside the ratio: rates for context, cost per event. */
  readonly detail?: Detail;
}

export function result(id: TargetId, { ratio, spread }: Ratio, detail?: Detail): Result {
  const { name, first, aim, better } = targets[id];
  const shown = round(ratio);
  return {
    id,
    name,
    ratio: shown,
    spread: [round(spread[0]), round(spread[1])],
    first,
    aim,
    better,
    ok: reaches(shown, first, better),
    ...(detail === undefined ? {} : { detail: rounded(detail) }),
  };
}

/** A bound that is not there is always reached. */
export function reaches(ratio: number, bound: number | null, better: Target["better"]): boolean {
  return bound === null || (better === "higher" ? ratio >= bound : ratio <= bound);
}

function rounded(detail: Detail): Detail {
  return Object.fromEntries(
    Object.entries(detail).map(([name, value]) => [name, typeof value === "number" ? round(value) : value]),
  );
}
