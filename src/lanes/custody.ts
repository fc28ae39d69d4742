import { toArrayLiteral } from "../storage/index.ts";
import { copyString, type LaneRow, type Read } from "./lane-row.ts";

/**
 * The writer of a leased row usually settles it within milliseconds, so the row is checked long before the lease
 * ends.
 */
const LEASED_RECHECK_MS = 50;
/** The longest interval between checks of a held row: an operator may replay or discard it from another machine. */
const MAX_HOLD_RECHECK_MS = 2_000;

/**
 * The rows that a reader is responsible for: in flight or held. A lane's mark may pass only rows that are in here
 * or deleted, so no row that was read once is lost.
 */
export class Custody {
  readonly holds = new Holds();
  readonly inFlight = new InFlight();
  readonly #nowMs: () => number;

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  /** Puts the row in flight and returns true if it may be handled now; otherwise holds its stream. */
  take(row: LaneRow, blocked: boolean, nowMs = this.#nowMs()): boolean {
    if (this.inFlight.knows(row) || this.holds.has(row)) return false;
    if (blocked || row.waitMs > 0) {
      this.holds.hold(row, blocked ? nowMs : nowMs + recheckDelayMs(row));
      return false;
    }
    this.inFlight.add(row, nowMs);
    return true;
  }

  /** Takes the rows of a lane scan that may be handled now. */
  takeWalked({ rows, isOwned }: Read): LaneRow[] {
    const nowMs = this.#nowMs();
    const taken: LaneRow[] = [];
    for (const { row, blocked } of rows) {
      if (isOwned(row.lane) && this.take(row, blocked, nowMs)) taken.push(row);
    }
    return taken;
  }

  /** Takes the urgent rows that match `fits` and whose stream has nothing in flight. */
  takeExpress(read: Read | undefined, limit: number, fits: (rank: number) => boolean): LaneRow[] {
    const taken: LaneRow[] = [];
    for (const { row, rank } of read?.rows ?? []) {
      if (taken.length >= limit) break;
      if (!fits(rank) || read?.isOwned(row.lane) !== true) continue;
      if (row.stream !== null && this.inFlight.hasStream(row.stream)) continue;
      if (this.take(row, false)) taken.push(row);
    }
    return taken;
  }

  // A held stream is released only if none of its rows is left and no mark has moved past a later one meanwhile.
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
   * Holds the streams of rows that were in flight when a read of their lane began. The read left out the later rows
   * of these streams, and the mark may pass them, so they are read again after the settle.
   */
  watch(rows: readonly LaneRow[]): void {
    const nowMs = this.#nowMs();
    for (const row of rows) {
      if (row.stream === null || this.holds.has(row)) continue;
      this.holds.hold(row, this.inFlight.hasStream(row.stream) ? Infinity : nowMs);
    }
  }

  /** Returns the rows that are in flight in these lanes. */
  inFlightIn(lanes: readonly number[]): LaneRow[] {
    return lanes.flatMap((lane) => this.inFlight.rowsIn(lane));
  }

  /** The streams and rows that a read of these lanes must leave out, as statement parameters. */
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

// At most MAX_HOLD_RECHECK_MS: an operator may change the rows, and the destination may recover early.
function restDelayMs({ topic }: LaneRow, restMs: ((topic: string) => number) | undefined): number {
  return Math.min(MAX_HOLD_RECHECK_MS, Math.max(LEASED_RECHECK_MS, restMs?.(topic) ?? 0));
}

function recheckDelayMs(row: LaneRow): number {
  return Math.min(row.waitMs, row.leased ? LEASED_RECHECK_MS : MAX_HOLD_RECHECK_MS);
}

/**
 * The rows that were returned by `fetch` and are not settled yet. A read does not see rows that settle while it
 * runs, so its result is compared with everything that was in flight since it began. Otherwise rows would be sent
 * twice.
 */
export class InFlight {
  readonly #lanes = new Map<number, BusyLane>();
  readonly #streams = new Map<string, number>();
  /** Seqs that left flight since the last read of their lane began. */
  readonly #ghosts = new Map<number, Set<number>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  /** Forgets the ghosts of these lanes. Two reads never cover the same lane at once. */
  beginRead(lanes: readonly number[]): void {
    if (this.#ghosts.size > 0) for (const lane of lanes) this.#ghosts.delete(lane);
  }

  has({ lane, seq }: LaneRow): boolean {
    return this.#lanes.get(lane)?.rows.has(seq) === true;
  }

  /** True for this very object, false for a copy of the row that was read after the lane was lost and regained. */
  holds(row: LaneRow | undefined): boolean {
    return row !== undefined && this.#lanes.get(row.lane)?.rows.get(row.seq) === row;
  }

  /** True if the row is in flight or was at some time since the read of its lane began. */
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

  /** Replaces a row by its copy that includes the message. */
  replace(row: LaneRow, whole: LaneRow): void {
    if (row !== whole && this.holds(row)) this.#lanes.get(row.lane)?.rows.set(row.seq, whole);
  }

  /** Returns false for a row that was read before its lane was lost: a newer copy may be in flight. */
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

  /** Milliseconds for which the lane has had rows in flight without a gap. */
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

/** A stream, or a single row without a key, that must wait. */
interface Hold {
  readonly lane: number;
  readonly stream: string | null;
  readonly seq: number;
  /** When to read it again, on the monotonic clock; Infinity while its rows are in flight. */
  untilMs: number;
}

/** Holds of a draining lane, or of one with a doubtful lease, are checked again after this long. */
const CLOSED_LANE_MS = 50;

/**
 * The held streams and rows. A failed row holds only its own stream. Scans skip the stream, and it is read from its
 * first row, by index, when it is due.
 */
export class Holds {
  readonly #streams = new Map<string, Hold>();
  readonly #rows = new Map<number, Hold>();
  /** A lower bound for the end of the next hold. */
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

  /** Makes all holds of these lanes due, because an operator changed rows there. */
  recheck(lanes: ReadonlySet<number>, nowMs: number): void {
    for (const held of this.#all()) {
      if (lanes.has(held.lane) && held.untilMs < Infinity) held.untilMs = nowMs;
    }
    this.#earliestMs = nowMs;
  }

  /** Call it after changing `untilMs`. */
  updateEarliest(hold: Hold): void {
    this.#earliestMs = Math.min(this.#earliestMs, hold.untilMs);
  }

  release(hold: RowKey): void {
    if (hold.stream === null) this.#rows.delete(hold.seq);
    else this.#streams.delete(hold.stream);
  }

  /** Returns holds that are due in lanes that may be worked on. Due holds of other lanes wait a little longer. */
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
