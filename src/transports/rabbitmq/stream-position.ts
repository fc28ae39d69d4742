/** What a group knows about how far it has read a stream, as it lies in a queue of its own. */
export interface Position {
  /** The last offset that is settled together with all before it, or -1. */
  readonly offset: number;
  /** When a group without an offset subscribed, in milliseconds since 1970; 0 for one that begins with the first. */
  readonly sinceMs: number;
}

export type StreamOffset = number | "first" | "next" | { readonly "!": "timestamp"; readonly value: number };

/** The furthest one counts: an older one may still lie there when a process died between writing and removing. */
export function maxPosition(a: Position, b: Position): Position {
  if (a.offset !== b.offset) return a.offset > b.offset ? a : b;
  return a.sinceMs <= b.sinceMs ? a : b;
}

/** A time is known to the broker in whole seconds, so whoever has only just come asks for what is next instead. */
export function toStreamOffset({ offset, sinceMs }: Position, arrivedMs: number): StreamOffset {
  if (offset >= 0) return offset + 1;
  if (sinceMs !== 0 && sinceMs === arrivedMs) return "next";
  return sinceMs === 0 ? "first" : { "!": "timestamp", value: Math.floor(sinceMs / 1_000) };
}

export function readPosition(body: Buffer): Position | undefined {
  const [offset, sinceMs] = body.toString("utf8").split(" ").map(Number);
  if (offset === undefined || sinceMs === undefined) return undefined;
  return Number.isSafeInteger(offset) && Number.isSafeInteger(sinceMs) ? { offset, sinceMs } : undefined;
}

export function writePosition({ offset, sinceMs }: Position): Buffer {
  return Buffer.from(`${offset} ${sinceMs}`);
}

/** Offsets in hand, of which the settled ones may be forgotten by the broker only in order. */
export class Progress {
  readonly #open = new Set<number>();
  #seen: number;

  constructor(offset: number) {
    this.#seen = offset;
  }

  /** False for what was settled before. */
  add(offset: number): boolean {
    if (offset <= this.#seen) return false;
    this.#seen = offset;
    this.#open.add(offset);
    return true;
  }

  settle(offset: number): void {
    this.#open.delete(offset);
  }

  /** The last offset up to which everything is settled. */
  get done(): number {
    // A set keeps the order of arrival, so its first is its smallest.
    const [oldest] = this.#open;
    return oldest === undefined ? this.#seen : oldest - 1;
  }
}
