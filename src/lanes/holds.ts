import { copyString } from "./intern-names.ts";

/** A stream (or a single row without a key) that must wait, and when to look at it again. */
export interface Hold {
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

export interface RowKey {
  readonly lane: number;
  readonly stream: string | null;
  readonly seq: number;
}
