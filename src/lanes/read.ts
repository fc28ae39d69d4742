import { laneRow, momentOf, type LaneRow, type RawRow, type ReadMoment } from "./lane-row.ts";

export const DEFAULT_PRIORITY = 5;

export interface ReadRow {
  readonly row: LaneRow;
  /** An earlier row of its stream has another priority and goes first. */
  readonly blocked: boolean;
  /** Its priority, raised by its age. */
  readonly rank: number;
}

/** One answer of the server, taken apart. */
export interface Read {
  readonly moment: ReadMoment | undefined;
  readonly rows: readonly ReadRow[];
  /** In no order. */
  readonly messages: readonly string[];
  /** Whether the lane is still ours under the claim it was read with. */
  still(lane: number): boolean;
}

export function readOf(raw: readonly RawRow[], still: Read["still"]): Read {
  return {
    moment: momentOf(raw),
    rows: raw.flatMap(({ row, blocked, rank = DEFAULT_PRIORITY }) =>
      row === null ? [] : [{ row: laneRow(row), blocked: blocked === true, rank }],
    ),
    messages: raw.flatMap(({ message }) => message ?? []),
    still,
  };
}
