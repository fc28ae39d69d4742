import type { OutgoingRecord, ProducerIdentity } from "./driver.ts";
import type { PublishOutcome } from "../../transport/index.ts";

/** One message on its way. */
export interface OutgoingMessage {
  readonly record: OutgoingRecord;
  readonly bytes: number;
  /** Once; later outcomes change nothing. */
  readonly settle: (outcome: PublishOutcome) => void;
  /** Nobody waits for it any more. */
  settled: boolean;
  /** It may have left this process. */
  taken: boolean;
}

export interface Batch {
  readonly line: PartitionQueue;
  readonly messages: readonly OutgoingMessage[];
  /** Before they are compressed. */
  readonly bytes: number;
  readonly sequence: number;
  identity: ProducerIdentity | undefined;
  /** Until then it is asked about again. */
  readonly endMs: number;
  /** An earlier try may have stored it. */
  maybeThere: boolean;
  tries: number;
}

const SEQUENCES = 0x8000_0000;

/**
 * The messages for one partition, in order. One batch of it is on the way at a time, so that a failed one is never
 * overtaken; what fails takes along everything that waits behind it.
 */
export class PartitionQueue {
  readonly topic: string;
  readonly partition: number;
  inFlight: Batch | undefined;
  #identity: ProducerIdentity | undefined;
  #sequence = 0;
  #waiting: OutgoingMessage[] = [];
  /** So many go one by one, because together they were refused. */
  #singleCount = 0;
  /** What is left of a message by compression, as the batches before have shown. */
  #compressionRatio = 1;

  constructor(topic: string, partition: number) {
    this.topic = topic;
    this.partition = partition;
  }

  get ready(): boolean {
    return this.inFlight === undefined && this.#waiting.length > 0;
  }

  add(message: OutgoingMessage): void {
    this.#waiting.push(message);
  }

  /**
   * The next batch, at least one message and else no more than so many bytes on the wire. How well messages can be
   * compressed is a guess from those before, so `surelyBytes` is the end even if these cannot be.
   */
  take(maxBytes: number, surelyBytes: number, endMs: number): Batch | undefined {
    const mostBytes = Math.max(maxBytes, Math.min(maxBytes / this.#compressionRatio, surelyBytes));
    const messages: OutgoingMessage[] = [];
    let bytes = 0;
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      if (!next.settled && messages.length > 0 && (this.#singleCount > 0 || bytes + next.bytes > mostBytes))
        break;
      this.#waiting.shift();
      if (next.settled) continue;
      messages.push(next);
      bytes += next.bytes;
    }
    if (messages.length === 0) return undefined;
    this.#singleCount = Math.max(0, this.#singleCount - 1);
    for (const message of messages) message.taken = true;
    const sequence = this.#sequence;
    this.inFlight = {
      line: this,
      messages,
      bytes,
      sequence,
      identity: this.#identity,
      endMs,
      maybeThere: false,
      tries: 0,
    };
    return this.inFlight;
  }

  identify(batch: Batch, identity: ProducerIdentity): void {
    this.#identity = identity;
    batch.identity = identity;
  }

  /** With its size on the wire, where that is known. Better than expected is believed slowly, worse at once. */
  completeBatch(batch: Batch, wireBytes = 0): void {
    const packing = wireBytes === 0 ? this.#compressionRatio : wireBytes / batch.bytes;
    this.#compressionRatio = Math.max(
      packing,
      this.#compressionRatio - (this.#compressionRatio - packing) / 4,
    );
    this.#sequence = (batch.sequence + batch.messages.length) % SEQUENCES;
    this.inFlight = undefined;
  }

  /** The broker's sequence and ours may differ now: the next batch needs a new identity. */
  resetIdentity(): void {
    this.#identity = undefined;
    this.#sequence = 0;
  }

  /** Not stored, and tried again one message at a time to find out which of them is to blame. */
  retryOneByOne(batch: Batch): void {
    this.inFlight = undefined;
    this.#singleCount = batch.messages.length;
    this.#waiting.unshift(...batch.messages);
  }

  /** Empties the line behind a batch that failed. */
  takeWaiting(): readonly OutgoingMessage[] {
    this.inFlight = undefined;
    this.#singleCount = 0;
    return this.#waiting.splice(0);
  }
}
