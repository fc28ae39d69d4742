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
  /** What a sketch reached in the same run, and where the bounds were set. The bounds are scaled by the quotient of the two. */
  readonly room?: { readonly here: number; readonly there: number };
  /** Figures beside the ratio: rates for context, cost per event. */
  readonly detail?: Detail;
}

export function result(id: TargetId, { ratio, spread }: Ratio, detail?: Detail, sketch?: Ratio): Result {
  const target: Target = targets[id];
  const { name, better } = target;
  const { first, aim, room } = scaleResult(target, sketch);
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
    ...(room === undefined ? {} : { room }),
    ...(detail === undefined ? {} : { detail: roundDetail(detail) }),
  };
}

/** Lowers the bounds by the share that the sketch reached here; never raises them. */
function scaleResult(
  { first, aim, room }: Target,
  sketch: Ratio | undefined,
): Pick<Result, "first" | "aim" | "room"> {
  if (room === undefined || sketch === undefined) return { first, aim };
  const share = Math.min(1, sketch.ratio / room);
  const bound = (listed: number | null): number | null => (listed === null ? null : round(listed * share));
  return { first: bound(first), aim: bound(aim), room: { here: round(sketch.ratio), there: room } };
}

/** A bound that is not there is always reached. */
export function reaches(ratio: number, bound: number | null, better: Target["better"]): boolean {
  return bound === null || (better === "higher" ? ratio >= bound : ratio <= bound);
}

function roundDetail(detail: Detail): Detail {
  return Object.fromEntries(
    Object.entries(detail).map(([name, value]) => [name, typeof value === "number" ? round(value) : value]),
  );
}
