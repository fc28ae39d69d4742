import type { OutgoingRecord, ProducerIdentity } from "./driver.ts";
import type { PublishOutcome } from "../../transport/index.ts";

/** One message in flight. */
export interface OutgoingMessage {
  readonly record: OutgoingRecord;
  readonly bytes: number;
  /** Sets the outcome. Later calls do nothing. */
  readonly settle: (outcome: PublishOutcome) => void;
  settled: boolean;
  /** Whether the message may have left this process. */
  maybeSent: boolean;
}

export interface Batch {
  readonly queue: PartitionQueue;
  readonly messages: readonly OutgoingMessage[];
  /** Size before compression. */
  readonly bytes: number;
  readonly sequence: number;
  identity: ProducerIdentity | undefined;
  /** When retries stop, in monotonic milliseconds. */
  readonly endMs: number;
  /** Whether an earlier try may have stored the batch. */
  maybeStored: boolean;
  tries: number;
}

const SEQUENCES = 0x8000_0000;

/**
 * The messages for one partition, in order. Only one batch is in flight at a time, so that a later message never
 * overtakes a failed batch. When a batch fails, the messages waiting behind it fail too.
 */
export class PartitionQueue {
  readonly topic: string;
  readonly partition: number;
  inFlight: Batch | undefined;
  #identity: ProducerIdentity | undefined;
  #sequence = 0;
  #waiting: OutgoingMessage[] = [];
  /** How many of the next messages are sent one by one, because the broker refused them as a batch. */
  #singleCount = 0;
  /** Compressed size divided by original size, estimated from earlier batches. */
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
   * Takes the next batch: at least one message, and otherwise at most `maxBytes` after compression. The compression is
   * only estimated, so a batch never exceeds `maxUncompressedBytes` before compression (or `maxBytes`, if larger).
   */
  take(maxBytes: number, maxUncompressedBytes: number, endMs: number): Batch | undefined {
    const limit = Math.max(maxBytes, Math.min(maxBytes / this.#compressionRatio, maxUncompressedBytes));
    const messages: OutgoingMessage[] = [];
    let bytes = 0;
    for (let next = this.#waiting[0]; next !== undefined; next = this.#waiting[0]) {
      if (!next.settled && messages.length > 0 && (this.#singleCount > 0 || bytes + next.bytes > limit))
        break;
      this.#waiting.shift();
      if (next.settled) continue;
      messages.push(next);
      bytes += next.bytes;
    }
    if (messages.length === 0) return undefined;
    this.#singleCount = Math.max(0, this.#singleCount - 1);
    for (const message of messages) message.maybeSent = true;
    const sequence = this.#sequence;
    this.inFlight = {
      queue: this,
      messages,
      bytes,
      sequence,
      identity: this.#identity,
      endMs,
      maybeStored: false,
      tries: 0,
    };
    return this.inFlight;
  }

  identify(batch: Batch, identity: ProducerIdentity): void {
    this.#identity = identity;
    batch.identity = identity;
  }

  /** Removes a stored batch. Its compressed size adjusts the estimate: slowly if it was better, at once if worse. */
  completeBatch(batch: Batch, wireBytes = 0): void {
    const ratio = wireBytes === 0 ? this.#compressionRatio : wireBytes / batch.bytes;
    this.#compressionRatio = Math.max(ratio, this.#compressionRatio - (this.#compressionRatio - ratio) / 4);
    this.#sequence = (batch.sequence + batch.messages.length) % SEQUENCES;
    this.inFlight = undefined;
  }

  /** Gives the next batch a new identity, because the broker's sequence and ours may differ. */
  resetIdentity(): void {
    this.#identity = undefined;
    this.#sequence = 0;
  }

  /** Sends the messages of a refused batch again one by one, to find the one that the broker refuses. */
  retryOneByOne(batch: Batch): void {
    this.inFlight = undefined;
    this.#singleCount = batch.messages.length;
    this.#waiting.unshift(...batch.messages);
  }

  /** Removes and returns the messages behind a batch that failed. */
  takeWaiting(): readonly OutgoingMessage[] {
    this.inFlight = undefined;
    this.#singleCount = 0;
    return this.#waiting.splice(0);
  }
}
