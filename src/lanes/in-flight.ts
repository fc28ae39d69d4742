import type { LaneRow } from "./lane-row.ts";

/**
 * What has been handed out and not come back yet. A read does not see what settles while it runs, so it is compared
 * with everything that was in flight at any moment since it began; otherwise rows are sent twice with no fault at all.
 */
export class InFlight {
  readonly #rows = new Map<number, LaneRow>();
  readonly #lanes = new Map<number, Set<number>>();
  readonly #streams = new Map<string, number>();
  readonly #since = new Map<number, number>();
  readonly #ghosts = new Set<number>();

  get size(): number {
    return this.#rows.size;
  }

  beginRead(): void {
    this.#ghosts.clear();
  }

  /** In flight now, or at some moment since the read began. */
  knows(seq: number): boolean {
    return this.#rows.has(seq) || this.#ghosts.has(seq);
  }

  hasStream(stream: string): boolean {
    return this.#streams.has(stream);
  }

  add(row: LaneRow, nowMs: number): void {
    this.#rows.set(row.seq, row);
    const seqs = this.#lanes.get(row.lane);
    if (seqs === undefined) {
      this.#lanes.set(row.lane, new Set([row.seq]));
      this.#since.set(row.lane, nowMs);
    } else seqs.add(row.seq);
    if (row.stream !== null) this.#streams.set(row.stream, (this.#streams.get(row.stream) ?? 0) + 1);
  }

  remove(row: LaneRow): boolean {
    if (!this.#rows.delete(row.seq)) return false;
    this.#ghosts.add(row.seq);
    const seqs = this.#lanes.get(row.lane);
    seqs?.delete(row.seq);
    if (seqs?.size === 0) {
      this.#lanes.delete(row.lane);
      this.#since.delete(row.lane);
    }
    if (row.stream !== null) this.#leaveStream(row.stream);
    return true;
  }

  idle(lane: number): boolean {
    return !this.#lanes.has(lane);
  }

  /** How long the lane has had something in flight without a pause. */
  busyMs(lane: number, nowMs: number): number {
    const since = this.#since.get(lane);
    return since === undefined ? 0 : nowMs - since;
  }

  rowsIn(lane: number): LaneRow[] {
    return [...(this.#lanes.get(lane) ?? [])].flatMap((seq) => this.#rows.get(seq) ?? []);
  }

  forget(lane: number): void {
    for (const row of this.rowsIn(lane)) this.remove(row);
  }

  #leaveStream(stream: string): void {
    const left = (this.#streams.get(stream) ?? 0) - 1;
    if (left > 0) this.#streams.set(stream, left);
    else this.#streams.delete(stream);
  }
}
