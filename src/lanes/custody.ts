import { toArrayLiteral } from "../storage/index.ts";
import { Holds, type Hold } from "./holds.ts";
import { InFlight } from "./in-flight.ts";
import type { LaneRow } from "./lane-row.ts";
import type { Read } from "./read.ts";

/** A row leased by its writer is usually gone in a moment: look again soon, not when the lease ends. */
const LEASED_RECHECK_MS = 50;
/** A person may replay or discard what holds a stream back, and may do so on another machine. */
const MAX_HOLD_RECHECK_MS = 2_000;

/**
 * The rows a reader has taken responsibility for: in flight, or held back until their stream may go on. A lane's mark
 * may pass only rows that are in here or gone, so nothing that was read once can be forgotten.
 */
export class Custody {
  readonly holds = new Holds();
  readonly inFlight = new InFlight();
  readonly #nowMs: () => number;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Into flight if it may be worked on now, and true; else it holds its stream back. */
  take(row: LaneRow, blocked: boolean, nowMs = this.#nowMs()): boolean {
    if (this.inFlight.knows(row) || this.holds.has(row)) return false;
    if (blocked || row.waitMs > 0) {
      this.holds.hold(row, blocked ? nowMs : nowMs + recheckDelayMs(row));
      return false;
    }
    this.inFlight.add(row, nowMs);
    return true;
  }

  /** Those of a read of lanes that may be worked on now. */
  takeWalked({ rows, still }: Read): LaneRow[] {
    const nowMs = this.#nowMs();
    const taken: LaneRow[] = [];
    for (const { row, blocked } of rows) {
      if (still(row.lane) && this.take(row, blocked, nowMs)) taken.push(row);
    }
    return taken;
  }

  /** Those of a read of urgent rows that fit and whose stream has nothing in flight. */
  takeExpress(read: Read | undefined, limit: number, fits: (rank: number) => boolean): LaneRow[] {
    const taken: LaneRow[] = [];
    for (const { row, rank } of read?.rows ?? []) {
      if (taken.length >= limit) break;
      if (!fits(rank) || read?.still(row.lane) !== true) continue;
      if (row.stream !== null && this.inFlight.hasStream(row.stream)) continue;
      if (this.take(row, false)) taken.push(row);
    }
    return taken;
  }

  // A held stream is let go only when nothing of it was left and no later row of it can have been passed over since.
  resumeHolds(
    due: readonly Hold[],
    rows: readonly LaneRow[],
    how: {
      readonly resting: readonly string[];
      readonly restMs?: ((topic: string) => number) | undefined;
      readonly marksMoved: (lane: number) => boolean;
    },
  ): LaneRow[] {
    const resting = new Set(how.resting);
    const byHold = groupByHold(rows);
    const nowMs = this.#nowMs();
    const taken: LaneRow[] = [];
    for (const hold of due) {
      const own = byHold.get(hold.stream ?? hold.seq) ?? [];
      const head = own[0];
      if (head === undefined) {
        if (hold.stream !== null && how.marksMoved(hold.lane)) hold.untilMs = nowMs;
        else this.holds.release(hold);
      } else if (resting.has(head.topic)) hold.untilMs = nowMs + restDelayMs(head, how.restMs);
      else if (head.waitMs > 0) hold.untilMs = nowMs + recheckDelayMs(head);
      else taken.push(...this.#takeReady(hold, own, nowMs));
      this.holds.updateEarliest(hold);
    }
    return taken;
  }

  settle(row: LaneRow): boolean {
    if (!this.inFlight.remove(row)) return false;
    if (row.stream !== null && this.holds.has(row) && !this.inFlight.hasStream(row.stream))
      this.holds.hold(row, this.#nowMs());
    return true;
  }

  putBack(row: LaneRow, delayMs: number): void {
    if (this.inFlight.remove(row)) this.holds.hold(row, this.#nowMs() + delayMs);
  }

  /**
   * What was in flight when a read of its lane began: its successors were left out, yet the mark may pass them now, so
   * they are looked for when it has settled, be it meanwhile.
   */
  watch(rows: readonly LaneRow[]): void {
    const nowMs = this.#nowMs();
    for (const row of rows) {
      if (row.stream === null || this.holds.has(row)) continue;
      this.holds.hold(row, this.inFlight.hasStream(row.stream) ? Infinity : nowMs);
    }
  }

  /** What is in flight in these lanes now. */
  inFlightIn(lanes: readonly number[]): LaneRow[] {
    return lanes.flatMap((lane) => this.inFlight.rowsIn(lane));
  }

  /** Streams and rows that a read of these lanes leaves out, as parameters. */
  excludedParams(lanes: readonly number[]): [string, string] {
    const within = new Set(lanes);
    const busy = this.inFlightIn(lanes);
    const streams = new Set(this.holds.streamsIn(within));
    for (const row of busy) if (row.stream !== null) streams.add(row.stream);
    const rows = [...busy.map((row) => row.seq), ...this.holds.rowsIn(within)];
    return [toArrayLiteral([...streams]), toArrayLiteral(rows)];
  }

  forget(lane: number): void {
    this.holds.forget(lane);
    this.inFlight.forget(lane);
  }

  #takeReady(hold: Hold, rows: readonly LaneRow[], nowMs: number): LaneRow[] {
    if (hold.stream !== null && this.inFlight.hasStream(hold.stream)) {
      hold.untilMs = Infinity;
      return [];
    }
    const taken: LaneRow[] = [];
    for (const row of rows) {
      if (row.waitMs > 0 || this.inFlight.knows(row)) break;
      this.inFlight.add(row, nowMs);
      taken.push(row);
    }
    hold.untilMs = taken.length > 0 ? Infinity : nowMs;
    if (hold.stream === null && taken.length > 0) this.holds.release(hold);
    return taken;
  }
}

function groupByHold(rows: readonly LaneRow[]): Map<string | number, LaneRow[]> {
  const groups = new Map<string | number, LaneRow[]>();
  for (const row of rows) {
    const name = row.stream ?? row.seq;
    const group = groups.get(name);
    if (group === undefined) groups.set(name, [row]);
    else group.push(row);
  }
  return groups;
}

// However long it rests: a person may change its rows meanwhile, and the destination may come back early.
function restDelayMs({ topic }: LaneRow, restMs: ((topic: string) => number) | undefined): number {
  return Math.min(MAX_HOLD_RECHECK_MS, Math.max(LEASED_RECHECK_MS, restMs?.(topic) ?? 0));
}

function recheckDelayMs(row: LaneRow): number {
  return Math.min(row.waitMs, row.leased ? LEASED_RECHECK_MS : MAX_HOLD_RECHECK_MS);
}
