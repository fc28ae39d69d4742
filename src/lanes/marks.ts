/**
 * How far a lane has been read for good.
 *
 * Scans that start at the front walk over every dead entry, so each lane remembers a mark and reads only behind it.
 * The mark may pass a position only when no writer can still commit below it: every writer takes its transaction
 * number before it draws a seq, so a number X drawn after a read is above those of all writers whose seq that read
 * could have missed. Once a later read sees that every transaction up to X has ended, that later read has seen them
 * all, and the mark moves up. A long writer slows the scan, never the order. A new lease starts from the beginning.
 */
export class Marks {
  readonly #lanes = new Map<number, LaneMark>();
  readonly #unproven = new Set<LaneMark>();
  #reads = 0;

  /** Reads finished so far: a transaction number asked for from now on is younger than all of them. */
  get reads(): number {
    return this.#reads;
  }

  markFor(lane: number): number {
    return this.#lanes.get(lane)?.mark ?? 0;
  }

  finishRead(): void {
    this.#reads += 1;
  }

  /** Call after `finishRead`: that read of this lane saw everything visible up to `position`; all transactions below `horizon` had ended. */
  recordRead(lane: number, position: number, horizon: bigint): void {
    let state = this.#lanes.get(lane);
    if (state === undefined) this.#lanes.set(lane, (state = { mark: 0 }));
    if (state.candidate?.xid !== undefined && horizon > state.candidate.xid) {
      // A read that was cut off has seen those late writers only as far as it went.
      state.mark = Math.max(state.mark, Math.min(state.candidate.position, position));
      if (position >= state.candidate.position) delete state.candidate;
    }
    if (state.candidate === undefined && position > state.mark) {
      state.candidate = { position, afterRead: this.#reads };
      this.#unproven.add(state);
    }
  }

  /** A transaction number that was asked for when `reads` reads had finished. */
  confirm(xid: bigint, reads: number): void {
    for (const state of this.#unproven) {
      if (state.candidate !== undefined && state.candidate.afterRead > reads) continue;
      if (state.candidate !== undefined) state.candidate.xid ??= xid;
      this.#unproven.delete(state);
    }
  }

  /** Nothing is certain any more: a server that crashed may give out numbers again that it gave out before. */
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
