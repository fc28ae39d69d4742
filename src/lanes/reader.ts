import { systemClock, type Clock } from "../runtime/index.ts";
import { quoteSchema, toArrayLiteral, type Queryable } from "../storage/index.ts";
import { Custody } from "./custody.ts";
import type { LaneRow, RawRow } from "./lane-row.ts";
import { HistoryDays } from "./days.ts";
import { isLarge, loadMessages } from "./with-messages.ts";
import { Marks } from "./marks.ts";
import type { LaneOwnership, LaneWorker } from "./ownership.ts";
import { measureProgress, type LaneProgress, type Walk } from "./progress.ts";
import { startRead, DEFAULT_PRIORITY, parseRead, type Read, type ReadRequest } from "./read.ts";
import { readStatements, type LaneTable, type ReadStatements } from "./statements.ts";
import { ReadTurns } from "./read-turns.ts";
import { Unread } from "./unread.ts";

export interface LaneReaderOptions {
  readonly schema: string;
  readonly table: LaneTable;
  /** Whether rows come with the message they stand for. */
  readonly messages: boolean;
  readonly ownership: LaneOwnership;
  /** A low priority rises by one for each of these that it has waited. */
  readonly ageingMs: number;
  /** Destinations at rest: their rows stay where they are. */
  readonly resting?: () => readonly string[];
  /** How long such a destination rests, as far as is known. */
  readonly restMs?: (topic: string) => number;
  /** Called when a lane that is being given up has nothing in flight any more. */
  readonly onIdle?: () => void;
  readonly clock?: Clock;
}

/** A lane with something in flight is left alone for this long, so that the next read finds a full batch. */
const BUSY_LANE_MS = 100;
/** With this many streams waiting, nothing new is taken until some of them have moved. */
const MAX_HOLDS = 20_000;

/**
 * Hands out the due rows of the lanes this member owns, each once, in order per stream. What is handed out is in
 * flight until it is `settled` (gone from the table) or given `back` (still there: looked at again when it is due).
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
  #bulky = false;
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

  /** The last read met messages that are too large to come along with their rows. */
  get bulky(): boolean {
    return this.#bulky;
  }

  /** True while lanes are known that may have something to read right now. */
  get hungry(): boolean {
    return this.#readable().length > 0 || this.#custody.holds.nextMs() <= this.#clock.monotonicMs();
  }

  /** Something may have been written to these lanes. */
  hint(lanes: Iterable<number>): void {
    this.#unread.add(lanes);
  }

  /** Rows of these lanes were changed by hand: what is held back there may be free, or due, or gone. */
  recheck(lanes: readonly number[]): void {
    this.#custody.holds.recheck(new Set(lanes), this.#clock.monotonicMs());
    this.#unread.add(lanes);
  }

  /** Look everywhere: hints may be lost, and rows may become due by themselves. */
  sweep(): void {
    this.#unread.add(this.#options.ownership.lanes());
  }

  /** Milliseconds until something held back may go on. */
  nextDueMs(): number {
    return Math.max(0, this.#custody.holds.nextMs() - this.#clock.monotonicMs());
  }

  /** Up to `limit` rows that may be worked on now, in flight from here on; `readers` share the lanes at the same time. */
  async fetch(session: Queryable, limit: number, readers = 1): Promise<LaneRow[]> {
    const rows: LaneRow[] = [];
    try {
      await this.#turns.take(
        () => this.#hasMoreThanLanes(),
        (isAlone) => this.#take(session, { limit, readers: isAlone ? 1 : readers, isAlone }, rows),
      );
      const whole = this.#options.messages ? await loadMessages(session, this.#sql.messages, rows) : rows;
      this.#bulky = whole.some((row, i) => row !== rows[i] && isLarge(row)); // others were of another day
      for (const [i, row] of rows.entries()) this.#custody.inFlight.replace(row, whole[i] ?? row);
      return whole.filter((row) => this.holds(row));
    } catch (error) {
      // Nobody has seen them yet, and a later statement failed: left in flight, nobody ever would.
      this.putBack(rows, 0);
      throw error;
    }
  }

  /** Whether it is still ours to work on: a lane may have been lost since, and regained, and the row read anew. */
  holds(row: LaneRow): boolean {
    return this.#custody.inFlight.holds(row);
  }

  #hasMoreThanLanes(): boolean {
    const { holds } = this.#custody;
    return this.#express || holds.size >= MAX_HOLDS || holds.nextMs() <= this.#clock.monotonicMs();
  }

  /** Adds to `rows` what is in flight from then on, statement by statement. */
  async #take(session: Queryable, { limit, readers, isAlone }: ReadRequest, rows: LaneRow[]): Promise<void> {
    if (isAlone) rows.push(...(await this.#reenter(session, limit)));
    if (this.#custody.holds.size >= MAX_HOLDS || rows.length >= limit) return;
    const urgent = isAlone && this.#express;
    const express = urgent ? await this.#expressRows(session, limit - rows.length) : undefined;
    // Low ones go when nothing else wants the place, or when they have waited long enough to have risen.
    const take = (fits: (rank: number) => boolean): void =>
      void rows.push(...this.#custody.takeExpress(express, limit - rows.length, fits));
    take((rank) => rank >= DEFAULT_PRIORITY);
    if (rows.length < limit) rows.push(...(await this.#walk(session, limit - rows.length, readers)));
    take((rank) => rank < DEFAULT_PRIORITY);
  }

  /** These rows are gone from the table, in a transaction with this number. */
  settle(rows: readonly LaneRow[], xid?: { readonly value: string; readonly reads: number }): void {
    if (xid !== undefined) this.confirmReads(xid.value, xid.reads);
    for (const row of rows) if (this.#custody.settle(row)) this.#notifyIdle(row.lane);
  }

  /** These rows are still in the table: their streams wait this long. */
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
    const still = new Set(lanes.filter((lane) => answer.still(lane)));
    const read = { ...answer, still: (lane: number) => still.has(lane) }; // what a mark may pass must be taken
    if (messages) this.#days.update(read.rows);
    const reached = measureProgress(lanes, read.rows, { perLane, limit }).filter(({ lane }) =>
      still.has(lane),
    );
    // What another connection has read since may come from a server that knows less.
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
      Math.floor(limit / due.length), // those of all streams together are no more than was asked for
    ]);
    const owned = due.filter((hold) => read.still(hold.lane));
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
    // A new connection may lead to a server that crashed in between and lost what was not durable yet.
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
