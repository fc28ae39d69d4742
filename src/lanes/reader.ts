import { type Clock, systemClock } from "../runtime/index.ts";
import { type Queryable, quoteSchema, type Statement, toArrayLiteral } from "../storage/index.ts";
import { Custody, Marks } from "./custody.ts";
import {
  DEFAULT_PRIORITY,
  HistoryDays,
  isWhole,
  type LaneRow,
  messageFor,
  packedMessages,
  parseRead,
  type RawRow,
  type Read,
  type ReadRequest,
  type ReadRow,
  startRead,
} from "./lane-row.ts";
import type { LaneOwnership, LaneWorker } from "./ownership.ts";
import { type LaneTable, readStatements, type ReadStatements } from "./statements.ts";

export interface LaneReaderOptions {
  readonly schema: string;
  readonly table: LaneTable;
  /** Whether rows are read together with their messages. */
  readonly messages: boolean;
  readonly ownership: LaneOwnership;
  /** A priority below the default rises by one for each interval of this length that a row has waited. */
  readonly ageingMs: number;
  /** Paused destinations. Their rows are not read. */
  readonly resting?: () => readonly string[];
  /** How long a destination stays paused, in milliseconds, as far as known. */
  readonly restMs?: (topic: string) => number;
  /** Called when a draining lane has no row in flight any more. */
  readonly onIdle?: () => void;
  readonly clock?: Clock;
}

/** A lane with rows in flight is not read again for this long, so that the next read returns a full batch. */
const BUSY_LANE_MS = 100;
/** With this many held streams, no new rows are taken until some of them are released. */
const MAX_HOLDS = 20_000;

/**
 * Returns the due rows of the lanes this worker owns, each row once and in order per stream. A row is in flight
 * until `settle` (it has left the table) or `putBack` (it is still there and is read again when due).
 */
export class LaneReader implements LaneWorker {
  readonly #options: LaneReaderOptions;
  readonly #sql: ReadStatements;
  readonly #clock: Clock;
  readonly #marks = new Marks();
  readonly #custody: Custody;
  readonly #unread = new Unread();
  readonly #days = new HistoryDays();
  readonly #turns = new ReadTurns();
  #express = false;
  #hasLargeMessages = false;
  #lastSession: Queryable | undefined;

  constructor(options: LaneReaderOptions) {
    this.#options = options;
    this.#sql = readStatements(quoteSchema(options.schema), options.table);
    this.#clock = options.clock ?? systemClock;
    this.#custody = new Custody(() => this.#clock.monotonicMs());
    options.ownership.attach(this);
  }

  get inFlight(): number {
    return this.#custody.inFlight.size;
  }

  get held(): number {
    return this.#custody.holds.size;
  }

  /** The last read found messages that are too large to be read together with their rows. */
  get hasLargeMessages(): boolean {
    return this.#hasLargeMessages;
  }

  /** True while some lanes may have rows to read now. */
  get hasWork(): boolean {
    return this.#readable().length > 0 || this.#custody.holds.nextMs() <= this.#clock.monotonicMs();
  }

  /** True if all owned lanes were read to their end since they were last marked, and nothing is in flight or due. */
  get isIdle(): boolean {
    const isRead =
      this.#unread.list((lane) => this.#options.ownership.claim(lane) !== undefined).length === 0;
    return isRead && this.inFlight === 0 && this.#custody.holds.nextMs() > this.#clock.monotonicMs();
  }

  /** Marks lanes as possibly having new rows. */
  hint(lanes: Iterable<number>): void {
    this.#unread.add(lanes);
  }

  /** Reads these lanes and their held streams again, because an operator changed rows there. */
  recheck(lanes: readonly number[]): void {
    this.#custody.holds.recheck(new Set(lanes), this.#clock.monotonicMs());
    this.#unread.add(lanes);
  }

  /** Reads all owned lanes again: hints may be lost, and delayed rows become due without a hint. */
  sweep(): void {
    this.#unread.add(this.#options.ownership.lanes());
  }

  /** Milliseconds until the next held stream is due. */
  nextDueMs(): number {
    return Math.max(0, this.#custody.holds.nextMs() - this.#clock.monotonicMs());
  }

  /**
   * Returns up to `limit` rows that are due now and counts them as in flight. `readers` calls may share the lanes
   * at once.
   */
  async fetch(session: Queryable, limit: number, readers = 1): Promise<LaneRow[]> {
    const rows: LaneRow[] = [];
    try {
      await this.#turns.take(
        () => this.#hasMoreThanLanes(),
        (isAlone) => this.#take(session, { limit, readers: isAlone ? 1 : readers, isAlone }, rows),
      );
      const whole = this.#options.messages ? await loadMessages(session, this.#sql.messages, rows) : rows;
      // Rows of another day also come without their message, so the size is checked.
      this.#hasLargeMessages = whole.some((row, i) => row !== rows[i] && isLarge(row));
      for (const [i, row] of rows.entries()) this.#custody.inFlight.replace(row, whole[i] ?? row);
      return whole.filter((row) => this.holds(row));
    } catch (error) {
      // The caller has not seen these rows, so it could never settle them.
      this.putBack(rows, 0);
      throw error;
    }
  }

  /**
   * Returns whether the row is still in flight here. False after its lane was lost, even if the row was read again
   * since.
   */
  holds(row: LaneRow): boolean {
    return this.#custody.inFlight.holds(row);
  }

  #hasMoreThanLanes(): boolean {
    const { holds } = this.#custody;
    return this.#express || holds.size >= MAX_HOLDS || holds.nextMs() <= this.#clock.monotonicMs();
  }

  /** Adds the rows it takes to `rows` after each statement, so that they can be put back if a later one fails. */
  async #take(session: Queryable, { limit, readers, isAlone }: ReadRequest, rows: LaneRow[]): Promise<void> {
    if (isAlone) rows.push(...(await this.#reenter(session, limit)));
    if (this.#custody.holds.size >= MAX_HOLDS || rows.length >= limit) return;
    const urgent = isAlone && this.#express;
    const express = urgent ? await this.#expressRows(session, limit - rows.length) : undefined;
    // Rows below the default priority are taken if the batch has room left, or once their age has raised them.
    const take = (fits: (rank: number) => boolean): void =>
      void rows.push(...this.#custody.takeExpress(express, limit - rows.length, fits));
    take((rank) => rank >= DEFAULT_PRIORITY);
    if (rows.length < limit) rows.push(...(await this.#walk(session, limit - rows.length, readers)));
    take((rank) => rank < DEFAULT_PRIORITY);
  }

  /** Removes rows from flight after the transaction `xid` deleted them from the table. */
  settle(rows: readonly LaneRow[], xid?: { readonly value: string; readonly reads: number }): void {
    if (xid !== undefined) this.confirmReads(xid.value, xid.reads);
    for (const row of rows) if (this.#custody.settle(row)) this.#notifyIdle(row.lane);
  }

  /** Removes rows from flight that are still in the table, and holds their streams for `delayMs`. */
  putBack(rows: readonly LaneRow[], delayMs: number): void {
    for (const row of rows) {
      this.#custody.putBack(row, delayMs);
      this.#notifyIdle(row.lane);
    }
  }

  onLanesGained(lanes: readonly number[]): void {
    this.#unread.add(lanes);
  }

  isDrained(lane: number): boolean {
    return this.#custody.inFlight.isIdle(lane);
  }

  onLanesLost(lanes: readonly number[]): void {
    for (const lane of lanes) {
      this.#marks.forget(lane);
      this.#custody.forget(lane);
      this.#unread.delete(lane);
    }
  }

  reads(): number {
    return this.#marks.reads;
  }

  confirmReads(xid: string, reads: number): void {
    this.#marks.confirm(BigInt(xid), reads);
  }

  #readable(): number[] {
    const nowMs = this.#clock.monotonicMs();
    return this.#unread.list((lane) => {
      if (this.#options.ownership.claim(lane) === undefined) return false;
      const busyMs = this.#custody.inFlight.busyMs(lane, nowMs);
      return this.#custody.inFlight.isIdle(lane) || busyMs >= BUSY_LANE_MS;
    });
  }

  #walk(session: Queryable, limit: number, readers: number): Promise<LaneRow[]> {
    return this.#turns.walk(this.#readable(), readers, (lanes) => this.#walkLanes(session, limit, lanes));
  }

  async #walkLanes(session: Queryable, limit: number, lanes: readonly number[]): Promise<LaneRow[]> {
    if (lanes.length === 0) return [];
    const perLane = Math.max(1, Math.ceil(limit / 2));
    const resting = this.#options.resting?.() ?? [];
    const began = this.#unread.moment;
    const busy = this.#custody.inFlightIn(lanes);
    const { messages } = this.#options;
    const answer = await this.#read(session, messages ? this.#sql.fetchWhole : this.#sql.fetch, lanes, [
      toArrayLiteral(lanes),
      toArrayLiteral(lanes.map((lane) => this.#marks.markFor(lane))),
      ...this.#excludedParams(lanes, resting),
      perLane,
      limit,
      ...(messages ? this.#days.guessRange(this.#clock.wallMs()) : []),
    ]);
    const owned = new Set(lanes.filter((lane) => answer.isOwned(lane)));
    // Freeze the answer: every row below a mark that moves must be taken.
    const read = { ...answer, isOwned: (lane: number) => owned.has(lane) };
    if (messages) this.#days.update(read.rows);
    const reached = measureProgress(lanes, read.rows, { perLane, limit }).filter(({ lane }) =>
      owned.has(lane),
    );
    // Another session may have moved `#lastSession` on, to a server that has not seen these rows.
    if (session === this.#lastSession) this.#remember(reached, read, { began, resting: resting.length > 0 });
    const passed = new Set(reached.map(({ lane }) => lane));
    this.#custody.watch(busy.filter((row) => passed.has(row.lane)));
    return this.#custody.takeWalked(read);
  }

  async #expressRows(session: Queryable, limit: number): Promise<Read | undefined> {
    const lanes = this.#options.ownership.lanes();
    if (lanes.length === 0) return undefined;
    const read = await this.#read(session, this.#sql.express, lanes, [
      toArrayLiteral(lanes),
      this.#options.ageingMs,
      ...this.#excludedParams(lanes, this.#options.resting?.() ?? []),
      limit,
      limit,
    ]);
    this.#express = read.moment?.express === true;
    return read;
  }

  async #reenter(session: Queryable, limit: number): Promise<LaneRow[]> {
    const mayWorkOn = (lane: number): boolean => this.#options.ownership.claim(lane) !== undefined;
    const due = this.#custody.holds.due(this.#clock.monotonicMs(), limit, mayWorkOn);
    if (due.length === 0) return [];
    const marks = new Map(due.map((hold) => [hold.lane, this.#marks.markFor(hold.lane)]));
    const streams = due.filter((hold) => hold.stream !== null);
    const single = due.filter((hold) => hold.stream === null);
    const lanes = [...new Set(due.map((hold) => hold.lane))];
    const read = await this.#read(session, this.#sql.reenter, lanes, [
      toArrayLiteral(streams.map((hold) => hold.lane)),
      toArrayLiteral(streams.map((hold) => hold.stream)),
      toArrayLiteral(single.map((hold) => hold.lane)),
      toArrayLiteral(single.map((hold) => hold.seq)),
      Math.floor(limit / due.length), // rows per stream, so that all streams together stay below the limit
    ]);
    const owned = due.filter((hold) => read.isOwned(hold.lane));
    const rows = read.rows.map(({ row }) => row);
    return this.#custody.resumeHolds(owned, rows, {
      resting: this.#options.resting?.() ?? [],
      restMs: this.#options.restMs,
      marksMoved: (lane) => marks.get(lane) !== this.#marks.markFor(lane),
    });
  }

  #excludedParams(lanes: readonly number[], resting: readonly string[]): [string, string, string] {
    return [...this.#custody.excludedParams(lanes), toArrayLiteral(resting)];
  }

  #remember(reached: readonly LaneProgress[], { moment }: Read, how: Walk): void {
    if (moment === undefined) return;
    const horizon = BigInt(moment.horizon);
    for (const { lane, whole, last } of reached) {
      if (whole) this.#unread.done(lane, how.began);
      else this.#unread.putLast(lane);
      if (!how.resting) this.#marks.recordRead(lane, whole ? Number(moment.tail) : last, horizon);
    }
  }

  async #read(
    session: Queryable,
    statement: ReadStatements["fetch"],
    lanes: readonly number[],
    params: readonly (string | number)[],
  ): Promise<Read> {
    const asked = startRead(session, lanes, this.#options.ownership);
    // A new session may lead to a server that crashed meanwhile and lost writes that were not durable.
    if (session !== this.#lastSession) this.#marks.forgetAll();
    this.#lastSession = session;
    this.#custody.inFlight.beginRead(lanes);
    const { rows } = await session.run<RawRow>(statement, params).catch((error: unknown) => {
      this.#marks.forgetAll();
      throw error;
    });
    this.#marks.finishRead();
    const read = parseRead(rows, asked);
    if (read.moment?.express === true) this.#express = true;
    return read;
  }

  #notifyIdle(lane: number): void {
    if (this.#custody.inFlight.isIdle(lane) && this.#options.ownership.claim(lane) === undefined)
      this.#options.onIdle?.();
  }
}

/** The lanes that may have new rows, oldest first. A hint adds some lanes, a sweep adds all. */
export class Unread {
  /** Lane to the counter value at which it was last added. */
  readonly #lanes = new Map<number, number>();
  #moment = 0;

  /** A counter that increases with every `add`. */
  get moment(): number {
    return this.#moment;
  }

  add(lanes: Iterable<number>): void {
    this.#moment += 1;
    for (const lane of lanes) this.#lanes.set(lane, this.#moment);
  }

  delete(lane: number): void {
    this.#lanes.delete(lane);
  }

  /** Removes a lane that was read to its end, unless it was added again after the read began. */
  done(lane: number, began: number): void {
    if ((this.#lanes.get(lane) ?? 0) <= began) this.#lanes.delete(lane);
  }

  /** Moves a lane that was not read to its end behind the others. */
  putLast(lane: number): void {
    this.#lanes.delete(lane);
    this.#lanes.set(lane, this.#moment);
  }

  list(fit: (lane: number) => boolean): number[] {
    return [...this.#lanes.keys()].filter(fit);
  }
}

/** Loads the messages of rows; a row whose message is gone keeps null. */
async function withMessages(
  session: Queryable,
  statement: Statement,
  rows: readonly LaneRow[],
): Promise<LaneRow[]> {
  const days = rows.map((row) => row.writtenOn).toSorted();
  const { rows: found } = await session.run<{ messages: string }>(statement, [
    toArrayLiteral(rows.map((row) => row.messageId)),
    days[0] ?? "",
    days.at(-1) ?? "",
  ]);
  const messages = packedMessages(found);
  return rows.map((row) => ({ ...row, ...messageFor(row, messages) }));
}

/** Loads the messages that were not read together with their rows. */
async function loadMessages(session: Queryable, statement: Statement, rows: LaneRow[]): Promise<LaneRow[]> {
  if (rows.every(isWhole)) return rows;
  const bare = rows.filter((row) => !isWhole(row));
  const found = await withMessages(session, statement, bare);
  return rows.map((row) => (isWhole(row) ? row : (found.shift() ?? row)));
}

/** A message that was left out of a read for its size has at least this many characters. */
const LARGE = 2_700;

function isLarge({ message }: LaneRow): boolean {
  return message !== null && message.data.length + JSON.stringify(message.headers).length >= LARGE;
}

/**
 * Decides which reads may run together. Reads that only scan lanes run concurrently, each over its own lanes. A
 * read that also looks at held or urgent rows of all lanes runs alone.
 */
export class ReadTurns {
  readonly #lanes = new Set<number>();
  readonly #waiting = new Set<() => void>();
  #reads = 0;
  #isAlone = false;

  /** Runs the read when it is allowed to. `needsAll` is evaluated at that moment and passed to the read. */
  async take<T>(needsAll: () => boolean, read: (isAlone: boolean) => Promise<T>): Promise<T> {
    while (this.#isAlone || (this.#reads > 0 && needsAll())) {
      await new Promise<void>((resolve) => this.#waiting.add(resolve));
    }
    const isAlone = needsAll();
    this.#reads += 1;
    this.#isAlone = isAlone;
    try {
      return await read(isAlone);
    } finally {
      this.#reads -= 1;
      if (isAlone) this.#isAlone = false;
      for (const resolve of this.#waiting) resolve();
      this.#waiting.clear();
    }
  }

  /** Reserves the lanes that no other read is scanning, or every `share`-th of them, for the duration of `walk`. */
  async walk<T>(
    lanes: readonly number[],
    share: number,
    walk: (own: readonly number[]) => Promise<T>,
  ): Promise<T> {
    const own = lanes.filter((lane) => !this.#lanes.has(lane)).filter((_, turn) => turn % share === 0);
    for (const lane of own) this.#lanes.add(lane);
    try {
      return await walk(own);
    } finally {
      for (const lane of own) this.#lanes.delete(lane);
    }
  }
}

interface ReadLimits {
  readonly perLane: number;
  readonly limit: number;
}

/** How a set of lanes was read. */
interface Walk {
  /** The `Unread.moment` at which the read began; lanes added later may have rows it has not seen. */
  readonly began: number;
  /** Rows of paused destinations were left out. */
  readonly resting: boolean;
}

/** How far a read got in one lane. */
interface LaneProgress {
  readonly lane: number;
  /** The lane was read to its end. */
  readonly whole: boolean;
  /** The seq of the last row that was read; 0 if there was none. */
  readonly last: number;
}

/**
 * Returns how far one read got in each lane. Rows are ordered by lane, so a read that reached its limit says
 * nothing about the lanes after its last row.
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
