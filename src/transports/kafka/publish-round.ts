import type { PublishOutcome } from "../../transport/index.ts";
import type { OutgoingRecord } from "./driver.ts";
import type { Outgoing } from "./partition-line.ts";

/** How a topic is laid out for the messages that are on their way to it. */
export interface Layout {
  partitions: number;
  open: number;
  next: number;
}

/** One call of publish: what it sends, and what became of each. */
export class Round {
  readonly timestampMs: number;
  /** Partitions that take no more of it, since an earlier message was refused. */
  readonly stopped = new Set<string>();
  readonly outgoing: Outgoing[] = [];
  /** When each has an outcome. */
  readonly ended: Promise<readonly PublishOutcome[]>;
  readonly #outcomes: PublishOutcome[];
  readonly #buffer: { bytes: number };
  #left: number;
  #end: (outcomes: readonly PublishOutcome[]) => void = () => undefined;

  constructor(count: number, nowMs: number, buffer: { bytes: number }) {
    this.timestampMs = Math.floor(nowMs);
    this.#outcomes = Array.from({ length: count });
    this.#left = count;
    this.#buffer = buffer;
    this.ended = new Promise((resolve) => (this.#end = resolve));
    if (count === 0) this.#end([]);
  }

  /** A message that goes out. What it takes of the buffer and of its topic it gives back with its outcome. */
  take(index: number, record: OutgoingRecord, bytes: number, layout: Layout): Outgoing {
    layout.open += 1;
    this.#buffer.bytes += bytes;
    const outgoing = new Message(record, bytes, (outcome) => {
      layout.open -= 1;
      this.#buffer.bytes -= bytes;
      this.end(index, outcome);
    });
    this.outgoing.push(outgoing);
    return outgoing;
  }

  end(index: number, outcome: PublishOutcome): void {
    this.#outcomes[index] = outcome;
    this.#left -= 1;
    if (this.#left === 0) this.#end(this.#outcomes);
  }
}

class Message implements Outgoing {
  readonly record: OutgoingRecord;
  readonly bytes: number;
  settled = false;
  taken = false;
  readonly #end: (outcome: PublishOutcome) => void;

  constructor(record: OutgoingRecord, bytes: number, end: (outcome: PublishOutcome) => void) {
    this.record = record;
    this.bytes = bytes;
    this.#end = end;
  }

  settle(outcome: PublishOutcome): void {
    if (this.settled) return;
    this.settled = true;
    this.#end(outcome);
  }
}
