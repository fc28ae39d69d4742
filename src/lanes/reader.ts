import { type Clock, systemClock } from "../runtime/index.ts";
import { type Queryable, quoteSchema, type Statement, toArrayLiteral } from "../storage/index.ts";
import { Custody } from "./custody.ts";
import { isWhole, type LaneRow, messageFor, packedMessages, type RawRow } from "./lane-row.ts";
import { Marks } from "./marks.ts";
import type { LaneOwnership, LaneWorker } from "./ownership.ts";
import { DEFAULT_PRIORITY, parseRead, type Read, type ReadRequest, type ReadRow, startRead } from "./read.ts";
import { type LaneTable, readStatements, type ReadStatements } from "./statements.ts";

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

/**
 * Which days of the history a read looks into for messages: today, and those of the rows that were read last. Each day costs,
 * also where nothing is found. A wrong guess, as at midnight or with a clock that is wrong, costs one more read.
 */
export class HistoryDays {
  #oldest: string | undefined;
  #newest: string | undefined;

  guessRange(wallMs: number): [from: string, to: string] {
    const today = new Date(wallMs).toISOString().slice(0, 10);
    const [oldest, newest] = [this.#oldest ?? today, this.#newest ?? today];
    return [oldest < today ? oldest : today, newest > today ? newest : today];
  }

  update(rows: readonly ReadRow[]): void {
    this.#oldest = this.#newest = undefined;
    for (const { row } of rows) {
      if (this.#oldest === undefined || row.writtenOn < this.#oldest) this.#oldest = row.writtenOn;
      if (this.#newest === undefined || row.writtenOn > this.#newest) this.#newest = row.writtenOn;
    }
  }
}

/** The lanes that may hold something new, oldest first: a hint names some, a sweep names all. */
export class Unread {
  /** Each with the moment it was last told of. */
  readonly #lanes = new Map<number, number>();
  #moment = 0;

  /** Grows with all that is told. */
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

  /** Read to its end by a read that began at that moment, and need not have seen what was told since. */
  done(lane: number, began: number): void {
    if ((this.#lanes.get(lane) ?? 0) <= began) this.#lanes.delete(lane);
  }

  /** Read, but not to its end: it comes after the others. */
  putLast(lane: number): void {
    this.#lanes.delete(lane);
    this.#lanes.set(lane, this.#moment);
  }

  list(fit: (lane: number) => boolean): number[] {
    return [...this.#lanes.keys()].filter(fit);
  }
}

/** The rows with the messages they stand for; a row whose message is gone keeps null. */
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

/** Those that came without their message get it by a statement of its own. */
async function loadMessages(session: Queryable, statement: Statement, rows: LaneRow[]): Promise<LaneRow[]> {
  if (rows.every(isWhole)) return rows;
  const bare = rows.filter((row) => !isWhole(row));
  const found = await withMessages(session, statement, bare);
  return rows.map((row) => (isWhole(row) ? row : (found.shift() ?? row)));
}

/** A message that did not come along with its row for its size has at least as many characters. */
const LARGE = 2_700;

function isLarge({ message }: LaneRow): boolean {
  return message !== null && message.data.length + JSON.stringify(message.headers).length >= LARGE;
}

/**
 * Who may read now. Reads that only walk lanes run beside each other, each over lanes of its own; one that looks at what
 * waits or is urgent, in whatever lane, runs alone.
 */
export class ReadTurns {
  readonly #lanes = new Set<number>();
  readonly #waiting = new Set<() => void>();
  #reads = 0;
  #isAlone = false;

  /** Runs the read when it may; `needsAll` is asked in that moment, and its answer told to the read. */
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

  /** Of these lanes, those that no other read is walking: every one, or one in `share`. They are this walk's own. */
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

/** How lanes were read, one after the other. */
interface Walk {
  /** What was told of them since need not have been seen. */
  readonly began: number;
  /** Rows of destinations at rest were left out. */
  readonly resting: boolean;
}

/** How far a read came in one lane. */
interface LaneProgress {
  readonly lane: number;
  /** Nothing more was waiting there. */
  readonly whole: boolean;
  /** The last row that was seen, 0 when there was none. */
  readonly last: number;
}

/**
 * How far one read over several lanes came, in their turn. Rows come lane by lane, so a read that reached its limit
 * says nothing of the lanes behind the one it stopped in.
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
