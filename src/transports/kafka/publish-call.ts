import type { PublishOutcome } from "../../transport/index.ts";
import type { OutgoingRecord } from "./driver.ts";
import type { OutgoingMessage } from "./partition-queue.ts";
import { RecordBuffer } from "./record-buffer.ts";

/** How a topic is laid out for the messages that are on their way to it. */
export interface TopicLayout {
  partitions: number;
  open: number;
  next: number;
}

/** One call of publish: what it sends, and what became of each. */
export class PublishCall {
  readonly timestampMs: number;
  /** Partitions that take no more of it, since an earlier message was refused. */
  readonly stopped = new Set<string>();
  readonly outgoing: OutgoingMessage[] = [];
  /** When each has an outcome. */
  readonly ended: Promise<readonly PublishOutcome[]>;
  /** What its messages hold. It lasts as long as one of them is on its way. */
  readonly room: RecordBuffer;
  readonly #outcomes: PublishOutcome[];
  readonly #buffer: { bytes: number };
  #left: number;
  #resolve: (outcomes: readonly PublishOutcome[]) => void = () => undefined;

  constructor(count: number, nowMs: number, buffer: { bytes: number }, expectedBytes: number) {
    this.timestampMs = Math.floor(nowMs);
    this.room = new RecordBuffer(expectedBytes);
    this.#outcomes = Array.from({ length: count });
    this.#left = count;
    this.#buffer = buffer;
    this.ended = new Promise((resolve) => (this.#resolve = resolve));
    if (count === 0) this.#resolve([]);
  }

  /** The message that was written last goes out. What it takes of the buffer and of its topic it gives back at its end. */
  take(index: number, start: number, bytes: number, layout: TopicLayout): OutgoingMessage {
    layout.open += 1;
    this.#buffer.bytes += bytes;
    const { room, timestampMs } = this;
    const outgoing = new PendingMessage(
      this,
      index,
      { room, start, end: room.end, timestampMs },
      bytes,
      layout,
    );
    this.outgoing.push(outgoing);
    return outgoing;
  }

  releaseBytes(bytes: number): void {
    this.#buffer.bytes -= bytes;
  }

  setOutcome(index: number, outcome: PublishOutcome): void {
    this.#outcomes[index] = outcome;
    this.#left -= 1;
    if (this.#left === 0) this.#resolve(this.#outcomes);
  }
}

class PendingMessage implements OutgoingMessage {
  readonly record: OutgoingRecord;
  readonly bytes: number;
  settled = false;
  taken = false;
  readonly #round: PublishCall;
  readonly #index: number;
  readonly #layout: TopicLayout;

  constructor(round: PublishCall, index: number, record: OutgoingRecord, bytes: number, layout: TopicLayout) {
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
    this.#round.releaseBytes(this.bytes);
    this.#round.setOutcome(this.#index, outcome);
  }
}
