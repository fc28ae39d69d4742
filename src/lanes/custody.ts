import { toArrayLiteral } from "../storage/index.ts";
import { copyString } from "./intern-names.ts";
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

/** A stream (or a single row without a key) that must wait, and when to look at it again. */
interface Hold {
  readonly lane: number;
  readonly stream: string | null;
  readonly seq: number;
  /** On the monotonic clock; Infinity while rows of it are in flight. */
  untilMs: number;
}

/** A lane that is being given up, or whose lease is in doubt, is asked for again after this long. */
const CLOSED_LANE_MS = 50;

/**
 * What is held back. A failing head holds its own stream and nothing else: the scan passes it over, so its
 * successors cost nothing, and it is read again from its beginning, through an index, when it is due.
 */
export class Holds {
  readonly #streams = new Map<string, Hold>();
  readonly #rows = new Map<number, Hold>();
  /** No hold ends before this; it may be too early, never too late. */
  #earliestMs = Infinity;

  get size(): number {
    return this.#streams.size + this.#rows.size;
  }

  has(row: RowKey): boolean {
    if (row.stream === null) return this.#rows.has(row.seq);
    return this.#streams.size > 0 && this.#streams.has(row.stream);
  }

  hold(row: RowKey, untilMs: number): void {
    const { lane, stream, seq } = row;
    const held = stream === null ? this.#rows.get(seq) : this.#streams.get(stream);
    this.#earliestMs = Math.min(this.#earliestMs, untilMs);
    if (held !== undefined) held.untilMs = untilMs;
    else if (stream === null) this.#rows.set(seq, { lane, stream, seq, untilMs });
    else this.#holdStream({ lane, stream: copyString(stream), seq, untilMs });
  }

  #holdStream(hold: Hold & { readonly stream: string }): void {
    this.#streams.set(hold.stream, hold);
  }

  /** Somebody changed rows of these lanes by hand: everything held there is looked at again. */
  recheck(lanes: ReadonlySet<number>, nowMs: number): void {
    for (const held of this.#all()) {
      if (lanes.has(held.lane) && held.untilMs < Infinity) held.untilMs = nowMs;
    }
    this.#earliestMs = nowMs;
  }

  /** Its time was changed in place. */
  updateEarliest(hold: Hold): void {
    this.#earliestMs = Math.min(this.#earliestMs, hold.untilMs);
  }

  release(hold: RowKey): void {
    if (hold.stream === null) this.#rows.delete(hold.seq);
    else this.#streams.delete(hold.stream);
  }

  /** Those whose time has come, of lanes that may be worked on; the others of them wait a little and take nobody's place. */
  due(nowMs: number, limit: number, mayWorkOn: (lane: number) => boolean = () => true): Hold[] {
    if (this.#earliestMs > nowMs) return [];
    const due: Hold[] = [];
    let earliestMs = Infinity;
    for (const held of this.#all()) {
      const isDue = held.untilMs <= nowMs;
      const mayGoOn = !isDue || mayWorkOn(held.lane);
      if (isDue && mayGoOn && due.length < limit) due.push(held);
      earliestMs = Math.min(earliestMs, mayGoOn ? held.untilMs : nowMs + CLOSED_LANE_MS);
    }
    this.#earliestMs = earliestMs;
    return due;
  }

  nextMs(): number {
    return this.#earliestMs;
  }

  streamsIn(lanes: ReadonlySet<number>): string[] {
    const streams: string[] = [];
    for (const held of this.#streams.values()) {
      if (held.stream !== null && lanes.has(held.lane)) streams.push(held.stream);
    }
    return streams;
  }

  rowsIn(lanes: ReadonlySet<number>): number[] {
    return [...this.#rows.values()].filter((held) => lanes.has(held.lane)).map((held) => held.seq);
  }

  *#all(): Generator<Hold> {
    yield* this.#rows.values();
    yield* this.#streams.values();
  }

  forget(lane: number): void {
    for (const [stream, held] of this.#streams) if (held.lane === lane) this.#streams.delete(stream);
    for (const [seq, held] of this.#rows) if (held.lane === lane) this.#rows.delete(seq);
  }
}

interface RowKey {
  readonly lane: number;
  readonly stream: string | null;
  readonly seq: number;
}
