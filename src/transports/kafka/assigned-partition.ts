import type { FetchedPartition, IncomingRecord, TopicPartition } from "./driver.ts";
import type { KafkaDelivery } from "./kafka-delivery.ts";
import { readDueMs } from "./record-headers.ts";

/** Where the records of a topic belong. */
export interface Source {
  /** The topic of the messages, without prefix or suffix. */
  readonly topic: string;
  readonly retries: boolean;
}

/** starting: asks where to begin · open · leaving: finishes what is handed out · gone: somebody else has it. */
export type PartitionState = "starting" | "open" | "leaving" | "gone";

export interface PendingRecord {
  readonly record: IncomingRecord;
  /** 0, or when it may be handed out. */
  readonly dueMs: number;
}

/** How far reading may run ahead of the first record that is not done. */
const MAX_OPEN_RECORDS = 5_000;

/** A partition that is ours for now: what was read of it, what is handed out, and what is done. */
export class AssignedPartition implements TopicPartition {
  readonly topic: string;
  readonly topicId: string;
  readonly partition: number;
  readonly source: Source;
  readonly deliveries = new Set<KafkaDelivery>();
  state: PartitionState = "starting";
  #offsets = new OffsetTracker(0);
  #position = 0;
  /** By due time, then by offset. */
  #waiting: PendingRecord[] = [];

  constructor(topic: string, topicId: string, partition: number, source: Source) {
    this.topic = topic;
    this.topicId = topicId;
    this.partition = partition;
    this.source = source;
  }

  get key(): string {
    return `${this.topicId}/${this.partition}`;
  }

  get position(): number {
    return this.#position;
  }

  get line(): OffsetTracker {
    return this.#offsets;
  }

  begin(offset: number): void {
    this.#offsets = new OffsetTracker(offset);
    this.#position = offset;
    this.#waiting = [];
    if (this.state === "starting") this.state = "open";
  }

  /**
   * The log no longer holds what comes next. Offsets may mean other records from here on, so what is handed out is lost
   * before the new line begins: settled on that, it would stand for a record that nobody has handled.
   */
  restart(offset: number, asked: number): void {
    if (this.state !== "open" || asked !== this.#position) return;
    this.abandonDeliveries();
    this.begin(offset);
  }

  hasRoomFor(atLeast: number): boolean {
    if (this.state !== "open" || this.#offsets.length >= MAX_OPEN_RECORDS) return false;
    return this.#waiting.length < (this.source.retries ? MAX_OPEN_RECORDS : atLeast);
  }

  /** Takes over what was fetched from `asked` on; an answer to an older question is dropped. */
  take(fetched: FetchedPartition, asked: number): void {
    if (this.state !== "open" || asked !== this.#position || fetched.next === undefined) return;
    for (const record of fetched.records) {
      this.#offsets.add(record.offset);
      this.#insert({ record, dueMs: this.source.retries ? readDueMs(record.headers) : 0 });
    }
    this.#offsets.skipTo(fetched.next);
    this.#position = fetched.next;
  }

  /** What may be handed out at this moment. */
  next(nowMs: number): PendingRecord | undefined {
    const first = this.#waiting[0];
    if (this.state !== "open" || first === undefined || first.dueMs > nowMs) return undefined;
    return this.#waiting.shift();
  }

  /** When the next one may be handed out. */
  nextDueMs(): number {
    return this.state === "open" ? (this.#waiting[0]?.dueMs ?? Infinity) : Infinity;
  }

  putBack(waiting: PendingRecord): void {
    if (this.state === "open") this.#insert({ record: waiting.record, dueMs: 0 });
  }

  /** Stops reading. What is waiting will be read by the next owner. */
  leave(): void {
    if (this.state === "open" || this.state === "starting") this.state = "leaving";
    this.#waiting = [];
  }

  abandon(): void {
    this.state = "gone";
    this.#waiting = [];
    this.abandonDeliveries();
  }

  abandonDeliveries(): void {
    // Losing a delivery takes it out of the set, so the set is copied first.
    Array.from(this.deliveries).forEach((delivery) => delivery.abandon());
  }

  #insert(waiting: PendingRecord): void {
    const last = this.#waiting.at(-1);
    if (last === undefined || !isBefore(waiting, last)) this.#waiting.push(waiting);
    else
      this.#waiting.splice(
        this.#waiting.findIndex((other) => isBefore(waiting, other)),
        0,
        waiting,
      );
  }
}

function isBefore(a: PendingRecord, b: PendingRecord): boolean {
  return a.dueMs < b.dueMs || (a.dueMs === b.dueMs && a.record.offset < b.record.offset);
}

/**
 * Which offset of a partition may be committed: everything before it is done. Records are settled in any order, but a
 * commit says "all before this one", so it must never pass a record that is still open. Offsets only grow; numbers may
 * be missing where the log was compacted or holds marks of transactions.
 */
export class OffsetTracker {
  /** Open and done records in the order of their offsets; everything before `#head` has been left behind. */
  #offsets: number[] = [];
  #head = 0;
  readonly #done = new Set<number>();
  #next: number;
  #committed: number;

  /** `start` is the first offset that is not yet done. */
  constructor(start: number) {
    this.#next = start;
    this.#committed = start;
  }

  /** Records that are open, or done behind an open one. */
  get length(): number {
    return this.#offsets.length - this.#head;
  }

  /** The next commit: the first record that is not done, or whatever comes after the last one that was read. */
  get safe(): number {
    return this.#offsets[this.#head] ?? this.#next;
  }

  get committed(): number {
    return this.#committed;
  }

  /** A record was read. */
  add(offset: number): void {
    if (offset < this.#next) throw new Error(`offset ${offset} comes after ${this.#next} was expected`);
    this.#offsets.push(offset);
    this.#next = offset + 1;
  }

  /** Everything before `next` was read, though not all of it is a record. */
  skipTo(next: number): void {
    this.#next = Math.max(this.#next, next);
  }

  complete(offset: number): void {
    if (offset < this.safe) return;
    this.#done.add(offset);
    for (let first = this.#offsets[this.#head]; first !== undefined; first = this.#offsets[this.#head]) {
      if (!this.#done.delete(first)) break;
      this.#head += 1;
    }
    if (this.#head > 1_000 && this.#head * 2 > this.#offsets.length) {
      this.#offsets = this.#offsets.slice(this.#head);
      this.#head = 0;
    }
  }

  /** The broker has confirmed this commit. */
  noteCommit(offset: number): void {
    this.#committed = Math.max(this.#committed, offset);
  }
}
