import type { LaneRow } from "./lane-row.ts";

/**
 * What has been handed out and not come back yet. A read does not see what settles while it runs, so it is compared
 * with everything that was in flight at any moment since it began; otherwise rows are sent twice with no fault at all.
 */
export class InFlight {
  readonly #lanes = new Map<number, BusyLane>();
  readonly #streams = new Map<string, number>();
  /** What came back from a lane since it was read last. */
  readonly #ghosts = new Map<number, Set<number>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** No two reads of a lane run at once. */
  beginRead(lanes: readonly number[]): void {
    if (this.#ghosts.size > 0) for (const lane of lanes) this.#ghosts.delete(lane);
  }

  has({ lane, seq }: LaneRow): boolean {
    return this.#lanes.get(lane)?.rows.has(seq) === true;
  }

  /** This very row, as it was handed out, and not what was read in its place since. */
  holds(row: LaneRow | undefined): boolean {
    return row !== undefined && this.#lanes.get(row.lane)?.rows.get(row.seq) === row;
  }

  /** In flight now, or at some moment since the read of its lane began. */
  knows(row: LaneRow): boolean {
    return this.has(row) || this.#ghosts.get(row.lane)?.has(row.seq) === true;
  }

  hasStream(stream: string): boolean {
    return this.#streams.has(stream);
  }

  add(row: LaneRow, nowMs: number): void {
    let lane = this.#lanes.get(row.lane);
    if (lane === undefined) this.#lanes.set(row.lane, (lane = { sinceMs: nowMs, rows: new Map() }));
    lane.rows.set(row.seq, row);
    this.#size += 1;
    if (row.stream !== null) this.#streams.set(row.stream, (this.#streams.get(row.stream) ?? 0) + 1);
  }

  /** The same row with its message is handed out in its place. */
  replace(row: LaneRow, whole: LaneRow): void {
    if (row !== whole && this.holds(row)) this.#lanes.get(row.lane)?.rows.set(row.seq, whole);
  }

  /** False for what was handed out before its lane was lost: the row may be on its way again, as another one. */
  remove(row: LaneRow): boolean {
    const lane = this.#lanes.get(row.lane);
    if (lane?.rows.get(row.seq) !== row) return false;
    lane.rows.delete(row.seq);
    this.#remember(row);
    this.#size -= 1;
    if (lane.rows.size === 0) this.#lanes.delete(row.lane);
    if (row.stream !== null) this.#leaveStream(row.stream);
    return true;
  }

  isIdle(lane: number): boolean {
    return !this.#lanes.has(lane);
  }

  /** How long the lane has had something in flight without a pause. */
  busyMs(lane: number, nowMs: number): number {
    const busy = this.#lanes.get(lane);
    return busy === undefined ? 0 : nowMs - busy.sinceMs;
  }

  rowsIn(lane: number): LaneRow[] {
    return [...(this.#lanes.get(lane)?.rows.values() ?? [])];
  }

  forget(lane: number): void {
    for (const row of this.rowsIn(lane)) this.remove(row);
  }

  #remember({ lane, seq }: LaneRow): void {
    const ghosts = this.#ghosts.get(lane);
    if (ghosts === undefined) this.#ghosts.set(lane, new Set([seq]));
    else ghosts.add(seq);
  }

  #leaveStream(stream: string): void {
    const left = (this.#streams.get(stream) ?? 0) - 1;
    if (left > 0) this.#streams.set(stream, left);
    else this.#streams.delete(stream);
  }
}

interface BusyLane {
  readonly sinceMs: number;
  readonly rows: Map<number, LaneRow>;
}
