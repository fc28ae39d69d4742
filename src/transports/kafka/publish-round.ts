import type { PublishOutcome } from "../../transport/index.ts";
import type { OutgoingRecord } from "./driver.ts";
import type { Outgoing } from "./partition-line.ts";
import { RecordRoom } from "./record-room.ts";

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
  /** What its messages hold. It lasts as long as one of them is on its way. */
  readonly room: RecordRoom;
  readonly #outcomes: PublishOutcome[];
  readonly #buffer: { bytes: number };
  #left: number;
  #end: (outcomes: readonly PublishOutcome[]) => void = () => undefined;

  constructor(count: number, nowMs: number, buffer: { bytes: number }, expectedBytes: number) {
    this.timestampMs = Math.floor(nowMs);
    this.room = new RecordRoom(expectedBytes);
    this.#outcomes = Array.from({ length: count });
    this.#left = count;
    this.#buffer = buffer;
    this.ended = new Promise((resolve) => (this.#end = resolve));
    if (count === 0) this.#end([]);
  }

  /** The message that was written last goes out. What it takes of the buffer and of its topic it gives back at its end. */
  take(index: number, start: number, bytes: number, layout: Layout): Outgoing {
    layout.open += 1;
    this.#buffer.bytes += bytes;
    const { room, timestampMs } = this;
    const outgoing = new Message(this, index, { room, start, end: room.end, timestampMs }, bytes, layout);
    this.outgoing.push(outgoing);
    return outgoing;
  }

  gone(bytes: number): void {
    this.#buffer.bytes -= bytes;
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
  readonly #round: Round;
  readonly #index: number;
  readonly #layout: Layout;

  constructor(round: Round, index: number, record: OutgoingRecord, bytes: number, layout: Layout) {
    this.#round = round;
    this.#index = index;
    this.record = record;
    this.bytes = bytes;
    this.#layout = layout;
  }

  settle(outcome: PublishOutcome): void {
    if (this.settled) return;
    this.settled = true;
    this.#layout.open -= 1;
    this.#round.gone(this.bytes);
    this.#round.end(this.#index, outcome);
  }
}
