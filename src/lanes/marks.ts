/**
 * Remembers for each lane the position below which no further row can appear.
 *
 * A scan from the start of a lane visits every dead index entry, so a read starts at the lane's mark. The mark may
 * pass a position only when no writer can still commit below it. Every writer takes its transaction id before it
 * draws a seq. A transaction id X taken after a read is therefore higher than the ids of all writers that the read
 * could have missed. Once a later read sees that every transaction up to X has ended, that read has seen all their
 * rows, and the mark moves up. A long transaction delays the mark but never breaks the order. A new claim starts at
 * 0.
 */
export class Marks {
  readonly #lanes = new Map<number, LaneMark>();
  readonly #unproven = new Set<LaneMark>();
  #reads = 0;

  /**
   * The number of finished reads. A transaction id taken from now on is higher than those visible to these reads.
   */
  get reads(): number {
    return this.#reads;
  }

  markFor(lane: number): number {
    return this.#lanes.get(lane)?.mark ?? 0;
  }

  finishRead(): void {
    this.#reads += 1;
  }

  /**
   * Records that a read saw every visible row of the lane up to `position`, with all transactions below `horizon`
   * ended. Call it after `finishRead`.
   */
  recordRead(lane: number, position: number, horizon: bigint): void {
    let state = this.#lanes.get(lane);
    if (state === undefined) this.#lanes.set(lane, (state = { mark: 0 }));
    if (state.candidate?.xid !== undefined && horizon > state.candidate.xid) {
      // A read that reached its limit has seen late writers only up to its last row.
      state.mark = Math.max(state.mark, Math.min(state.candidate.position, position));
      if (position >= state.candidate.position) delete state.candidate;
    }
    if (state.candidate === undefined && position > state.mark) {
      state.candidate = { position, afterRead: this.#reads };
      this.#unproven.add(state);
    }
  }

  /** Records a transaction id that was taken when `reads` reads had finished. */
  confirm(xid: bigint, reads: number): void {
    for (const state of this.#unproven) {
      if (state.candidate !== undefined && state.candidate.afterRead > reads) continue;
      if (state.candidate !== undefined) state.candidate.xid ??= xid;
      this.#unproven.delete(state);
    }
  }

  /** Resets all marks: a server that crashed may assign transaction ids and seqs again that were not durable. */
  forgetAll(): void {
    this.#lanes.clear();
    this.#unproven.clear();
  }

  forget(lane: number): void {
    const state = this.#lanes.get(lane);
    if (state !== undefined) this.#unproven.delete(state);
    this.#lanes.delete(lane);
  }
}

interface LaneMark {
  mark: number;
  candidate?: { readonly position: number; readonly afterRead: number; xid?: bigint };
}
