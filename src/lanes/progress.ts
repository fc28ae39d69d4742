import type { ReadRow } from "./read.ts";

export interface ReadLimits {
  readonly perLane: number;
  readonly limit: number;
}

/** How lanes were read, one after the other. */
export interface Walk {
  /** What was told of them since need not have been seen. */
  readonly began: number;
  /** Rows of destinations at rest were left out. */
  readonly resting: boolean;
}

/** How far a read came in one lane. */
export interface LaneProgress {
  readonly lane: number;
  /** Nothing more was waiting there. */
  readonly whole: boolean;
  /** The last row that was seen, 0 when there was none. */
  readonly last: number;
}

/**
 * How far one read over several lanes came, in their turn. Rows come lane by lane, so a read that reached its limit
 * says nothing of the lanes behind the one it stopped in.
 */
export const measureProgress = (
  lanes: readonly number[],
  rows: readonly Pick<ReadRow, "row">[],
  { perLane, limit }: ReadLimits,
): LaneProgress[] => {
  const found = countByLane(rows);
  const stoppedIn = rows.at(-1)?.row.lane ?? -1;
  const cutAt = rows.length >= limit ? lanes.indexOf(stoppedIn) : lanes.length;
  return lanes.slice(0, cutAt + 1).map((lane, turn) => {
    const { count, last } = found.get(lane) ?? { count: 0, last: 0 };
    return { lane, whole: turn < cutAt && count < perLane, last };
  });
};

interface LaneCount {
  count: number;
  last: number;
}

function countByLane(rows: readonly Pick<ReadRow, "row">[]): Map<number, LaneCount> {
  const found = new Map<number, LaneCount>();
  let [current, lane]: [LaneCount | undefined, number] = [undefined, -1];
  for (const { row } of rows) {
    if (current === undefined || row.lane !== lane) {
      lane = row.lane;
      current = found.get(lane) ?? { count: 0, last: 0 };
      found.set(lane, current);
    }
    current.count += 1;
    current.last = row.seq;
  }
  return found;
}
