import { systemClock, type Clock } from "../runtime/index.ts";
import { quotedSchema, textArray, type Queryable } from "../storage/index.ts";
import { Custody } from "./custody.ts";
import { isWhole, type LaneRow, type RawRow } from "./lane-row.ts";
import { Days } from "./days.ts";
import { withMessages } from "./with-messages.ts";
import { Marks } from "./marks.ts";
import type { LaneOwnership, LaneWorker } from "./ownership.ts";
import { progressOf, type ReadLimits } from "./progress.ts";
import { DEFAULT_PRIORITY, readOf, type Read } from "./read.ts";
import { readStatements, type LaneTable, type ReadStatements } from "./statements.ts";
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
  readonly #days = new Days();
  #express = false;
  #lastSession: Queryable | undefined;

  constructor(options: LaneReaderOptions) {
    this.#options = options;
    this.#sql = readStatements(quotedSchema(options.schema), options.table);
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

  /** Up to `limit` rows that may be worked on now. They are in flight from here on. */
  async fetch(session: Queryable, limit: number): Promise<LaneRow[]> {
    const rows: LaneRow[] = [];
    try {
      await this.#take(session, limit, rows);
      const whole = await this.#whole(session, rows);
      // A lane may have been lost while a later statement ran: what was taken of it before is somebody else's.
      return whole.filter((row) => this.#custody.inFlight.has(row));
    } catch (error) {
      // Nobody has seen them yet, and a later statement failed: left in flight, nobody ever would.
      this.back(rows, 0);
      throw error;
    }
  }

  /** Adds to `rows` what is in flight from then on, statement by statement. */
  async #take(session: Queryable, limit: number, rows: LaneRow[]): Promise<void> {
    rows.push(...(await this.#reenter(session, limit)));
    if (this.#custody.holds.size >= MAX_HOLDS || rows.length >= limit) return;
    const express = this.#express ? await this.#expressRows(session, limit - rows.length) : undefined;
    const take = (fits: (rank: number) => boolean): void =>
      void rows.push(...this.#takeExpress(express, limit - rows.length, fits));
    take((rank) => rank >= DEFAULT_PRIORITY);
    if (rows.length < limit) rows.push(...(await this.#walk(session, limit - rows.length)));
    take((rank) => rank < DEFAULT_PRIORITY);
  }

  async #whole(session: Queryable, rows: LaneRow[]): Promise<LaneRow[]> {
    if (!this.#options.messages || rows.every(isWhole)) return rows;
    const bare = await withMessages(
      session,
      this.#sql.messages,
      rows.filter((row) => !isWhole(row)),
    );
    return rows.map((row) => (isWhole(row) ? row : (bare.shift() ?? row)));
  }

  /** These rows are gone from the table, in a transaction with this number. */
  settled(rows: readonly LaneRow[], xid?: { readonly value: string; readonly reads: number }): void {
    if (xid !== undefined) this.saw(xid.value, xid.reads);
    for (const row of rows) if (this.#custody.settled(row)) this.#tellIdle(row.lane);
  }

  /** These rows are still in the table: their streams wait this long. */
  back(rows: readonly LaneRow[], delayMs: number): void {
    for (const row of rows) {
      this.#custody.back(row, delayMs);
      this.#tellIdle(row.lane);
    }
  }

  gained(lanes: readonly number[]): void {
    this.#unread.add(lanes);
  }

  drained(lane: number): boolean {
    return this.#custody.inFlight.idle(lane);
  }

  lost(lanes: readonly number[]): void {
    for (const lane of lanes) {
      this.#marks.forget(lane);
      this.#custody.forget(lane);
      this.#unread.delete(lane);
    }
  }

  reads(): number {
    return this.#marks.reads;
  }

  saw(xid: string, reads: number): void {
    this.#marks.proven(BigInt(xid), reads);
  }

  #readable(): number[] {
    const nowMs = this.#clock.monotonicMs();
    return this.#unread.list((lane) => {
      if (this.#options.ownership.claim(lane) === undefined) return false;
      const busyMs = this.#custody.inFlight.busyMs(lane, nowMs);
      return this.#custody.inFlight.idle(lane) || busyMs >= BUSY_LANE_MS;
    });
  }

  async #walk(session: Queryable, limit: number): Promise<LaneRow[]> {
    const lanes = this.#readable();
    if (lanes.length === 0) return [];
    const perLane = Math.max(1, Math.ceil(limit / 2));
    const resting = this.#options.resting?.() ?? [];
    this.#custody.watchBusyStreams(lanes);
    const { messages } = this.#options;
    const answer = await this.#read(session, messages ? this.#sql.fetchWhole : this.#sql.fetch, lanes, [
      textArray(lanes),
      textArray(lanes.map((lane) => this.#marks.markOf(lane))),
      ...this.#passedOver(lanes, resting),
      perLane,
      limit,
      ...(messages ? this.#days.expected(this.#clock.wallMs()) : []),
    ]);
    const still = new Set(lanes.filter((lane) => answer.still(lane)));
    const read = { ...answer, still: (lane: number) => still.has(lane) }; // what a mark may pass must be taken
    if (messages) this.#days.met(read.rows);
    this.#remember(lanes, read, { perLane, limit, resting: resting.length > 0 });
    const taken: LaneRow[] = [];
    for (const { row, blocked } of read.rows) {
      if (read.still(row.lane) && this.#custody.take(row, blocked)) taken.push(row);
    }
    return taken;
  }

  async #expressRows(session: Queryable, limit: number): Promise<Read | undefined> {
    const lanes = this.#options.ownership.lanes();
    if (lanes.length === 0) return undefined;
    const read = await this.#read(session, this.#sql.express, lanes, [
      textArray(lanes),
      this.#options.ageingMs,
      ...this.#passedOver(lanes, this.#options.resting?.() ?? []),
      limit,
      limit,
    ]);
    this.#express = read.moment?.express === true;
    return read;
  }

  // Low ones go when nothing else wants the place, or when they have waited long enough to have risen.
  #takeExpress(read: Read | undefined, limit: number, fits: (rank: number) => boolean): LaneRow[] {
    const taken: LaneRow[] = [];
    for (const { row, rank } of read?.rows ?? []) {
      if (taken.length >= limit) break;
      if (!fits(rank) || read?.still(row.lane) !== true) continue;
      if (row.stream !== null && this.#custody.inFlight.hasStream(row.stream)) continue;
      if (this.#custody.take(row, false)) taken.push(row);
    }
    return taken;
  }

  async #reenter(session: Queryable, limit: number): Promise<LaneRow[]> {
    const due = this.#custody.holds
      .due(this.#clock.monotonicMs(), limit)
      .filter((hold) => this.#options.ownership.claim(hold.lane) !== undefined);
    if (due.length === 0) return [];
    const marks = new Map(due.map((hold) => [hold.lane, this.#marks.markOf(hold.lane)]));
    const streams = due.filter((hold) => hold.stream !== null);
    const single = due.filter((hold) => hold.stream === null);
    const lanes = [...new Set(due.map((hold) => hold.lane))];
    const read = await this.#read(session, this.#sql.reenter, lanes, [
      textArray(streams.map((hold) => hold.lane)),
      textArray(streams.map((hold) => hold.stream)),
      textArray(single.map((hold) => hold.lane)),
      textArray(single.map((hold) => hold.seq)),
      Math.floor(limit / due.length), // those of all streams together are no more than was asked for
    ]);
    const owned = due.filter((hold) => read.still(hold.lane));
    const rows = read.rows.map(({ row }) => row);
    return this.#custody.goOn(owned, rows, {
      resting: this.#options.resting?.() ?? [],
      restMs: this.#options.restMs,
      marksMoved: (lane) => marks.get(lane) !== this.#marks.markOf(lane),
    });
  }

  #passedOver(lanes: readonly number[], resting: readonly string[]): [string, string, string] {
    return [...this.#custody.passedOver(lanes), textArray(resting)];
  }

  #remember(lanes: readonly number[], read: Read, how: ReadLimits & { readonly resting: boolean }): void {
    if (read.moment === undefined) return;
    const horizon = BigInt(read.moment.horizon);
    for (const { lane, whole, last } of progressOf(lanes, read.rows, how)) {
      if (!read.still(lane)) continue;
      if (whole) this.#unread.delete(lane);
      else this.#unread.putLast(lane);
      if (!how.resting) this.#marks.read(lane, whole ? Number(read.moment.tail) : last, horizon);
    }
  }

  async #read(
    session: Queryable,
    statement: ReadStatements["fetch"],
    lanes: readonly number[],
    params: readonly (string | number)[],
  ): Promise<Read> {
    const { ownership } = this.#options;
    const claims = new Map(lanes.map((lane) => [lane, ownership.claim(lane)]));
    // A new connection may lead to a server that crashed in between and lost what was not durable yet.
    if (session !== this.#lastSession) this.#marks.forgetAll();
    this.#lastSession = session;
    this.#custody.inFlight.beginRead();
    const { rows } = await session.run<RawRow>(statement, params).catch((error: unknown) => {
      this.#marks.forgetAll();
      throw error;
    });
    this.#marks.finishRead();
    const read = readOf(rows, (lane) => {
      const claim = ownership.claim(lane);
      return claim !== undefined && claim === claims.get(lane);
    });
    if (read.moment?.express === true) this.#express = true;
    return read;
  }

  #tellIdle(lane: number): void {
    if (this.#custody.inFlight.idle(lane) && this.#options.ownership.claim(lane) === undefined)
      this.#options.onIdle?.();
  }
}
