import { after, type CancelTimer } from "../../runtime/index.ts";
import type { FetchedPartition, IncomingRecord, OwnedPartitions, TopicPartition } from "./driver.ts";
import type { KafkaDelivery } from "./kafka-delivery.ts";
import { readDueMs } from "./record-headers.ts";
import { groupByTopic } from "./wire-forms.ts";

/** Which messages the records of a Kafka topic are. */
export interface Source {
  /** The topic of the messages, without prefix or suffix. */
  readonly topic: string;
  /** Whether the Kafka topic is a retry topic, whose records have a due time. */
  readonly retries: boolean;
}

/**
 * starting: the start offset is not known yet · open: fetches and delivers · leaving: only finishes deliveries in
 * flight · gone: another member may own it
 */
export type PartitionState = "starting" | "open" | "leaving" | "gone";

export interface PendingRecord {
  readonly record: IncomingRecord;
  /** When the record may be delivered, in milliseconds since the epoch; 0 for at once. */
  readonly dueMs: number;
}

/** How many records may be read and not yet committable. */
const MAX_OPEN_RECORDS = 5_000;

/** A partition that this member owns: its buffered records, its deliveries in flight, and its settled offsets. */
export class AssignedPartition implements TopicPartition {
  readonly topic: string;
  readonly topicId: string;
  readonly partition: number;
  readonly source: Source;
  readonly deliveries = new Set<KafkaDelivery>();
  state: PartitionState = "starting";
  #offsets = new OffsetTracker(0);
  #position = 0;
  /** Ordered by due time, then by offset. */
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

  get offsets(): OffsetTracker {
    return this.#offsets;
  }

  begin(offset: number): void {
    this.#offsets = new OffsetTracker(offset);
    this.#position = offset;
    this.#waiting = [];
    if (this.state === "starting") this.state = "open";
  }

  /**
   * Continues at `offset` because the log no longer holds the next record. Offsets may now stand for other records, so
   * deliveries in flight are aborted first: settling one later would complete a record that was never handled.
   */
  restart(offset: number, requested: number): void {
    if (this.state !== "open" || requested !== this.#position) return;
    this.abandonDeliveries();
    this.begin(offset);
  }

  hasRoomFor(minBuffered: number): boolean {
    if (this.state !== "open" || this.#offsets.length >= MAX_OPEN_RECORDS) return false;
    return this.#waiting.length < (this.source.retries ? MAX_OPEN_RECORDS : minBuffered);
  }

  /** Buffers records that were fetched from offset `requested`. The answer to an outdated request is dropped. */
  take(fetched: FetchedPartition, requested: number): void {
    if (this.state !== "open" || requested !== this.#position || fetched.next === undefined) return;
    for (const record of fetched.records) {
      this.#offsets.add(record.offset);
      this.#insert({ record, dueMs: this.source.retries ? readDueMs(record.headers) : 0 });
    }
    this.#offsets.skipTo(fetched.next);
    this.#position = fetched.next;
  }

  /** Takes the next record that is due. */
  next(nowMs: number): PendingRecord | undefined {
    const first = this.#waiting[0];
    if (this.state !== "open" || first === undefined || first.dueMs > nowMs) return undefined;
    return this.#waiting.shift();
  }

  /** When the next record is due, in milliseconds since the epoch; Infinity if no record is buffered. */
  nextDueMs(): number {
    return this.state === "open" ? (this.#waiting[0]?.dueMs ?? Infinity) : Infinity;
  }

  putBack(waiting: PendingRecord): void {
    if (this.state === "open") this.#insert({ record: waiting.record, dueMs: 0 });
  }

  /** Stops reading. The next owner reads the records that are still buffered here. */
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
    // Abandoning a delivery removes it from the set, so the set is copied first.
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
 * Tracks which offset of a partition may be committed. Records are settled in any order, but a commit covers all
 * earlier records, so it must never pass an open one. Offsets only grow; numbers may be missing where the log was
 * compacted or holds transaction markers.
 */
export class OffsetTracker {
  /** Offsets of open and done records in ascending order; entries before index `#head` are no longer needed. */
  #offsets: number[] = [];
  #head = 0;
  readonly #done = new Set<number>();
  #next: number;
  #committed: number;

  /** `start` is the first offset that is not done. */
  constructor(start: number) {
    this.#next = start;
    this.#committed = start;
  }

  /** Number of records that are open, or done but behind an open one. */
  get length(): number {
    return this.#offsets.length - this.#head;
  }

  /** The offset to commit next: the first record that is not done, or the offset after the last one read. */
  get safe(): number {
    return this.#offsets[this.#head] ?? this.#next;
  }

  get committed(): number {
    return this.#committed;
  }

  /** Adds a record that was read. Throws if its offset is lower than expected. */
  add(offset: number): void {
    if (offset < this.#next) throw new Error(`offset ${offset} was read, but ${this.#next} was expected`);
    this.#offsets.push(offset);
    this.#next = offset + 1;
  }

  /** Notes that the log was read up to `next`, including offsets that hold no record. */
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

  /** Notes a commit that the broker has confirmed. */
  noteCommit(offset: number): void {
    this.#committed = Math.max(this.#committed, offset);
  }
}

interface PartitionsParts {
  readonly handOverMs: number;
  readonly commit: () => Promise<void>;
  /** Called when a partition was given up, so that a heartbeat reports it. */
  readonly onRelease: () => void;
}

/** The partitions this member owns. A revoked partition is kept until its deliveries in flight are settled. */
export class Partitions implements Iterable<AssignedPartition> {
  readonly #parts: PartitionsParts;
  readonly #held = new Map<string, AssignedPartition>();
  readonly #leaving = new Map<AssignedPartition, CancelTimer>();

  constructor(parts: PartitionsParts) {
    this.#parts = parts;
  }

  [Symbol.iterator](): Iterator<AssignedPartition> {
    return this.#held.values();
  }

  listOwned(): readonly OwnedPartitions[] {
    return groupByTopic([...this.#held.values()], ({ topicId }) => topicId).map(([topicId, held]) => ({
      topicId,
      partitions: held.map(({ partition }) => partition),
    }));
  }

  /** Adds newly assigned partitions and begins to release those that are no longer assigned. */
  assign(
    assignment: readonly OwnedPartitions[],
    make: (topicId: string, partition: number) => AssignedPartition | undefined,
  ): void {
    const wanted = new Set<string>();
    for (const { topicId, partitions } of assignment) {
      for (const partition of partitions) {
        const key = `${topicId}/${partition}`;
        wanted.add(key);
        const made = this.#held.has(key) ? undefined : make(topicId, partition);
        if (made !== undefined) this.#held.set(key, made);
      }
    }
    for (const partition of this.#held.values())
      if (!wanted.has(partition.key)) this.#startRelease(partition);
  }

  /** Finishes the release of a partition if no delivery of it is in flight any more. */
  noteDeliveryEnd(partition: AssignedPartition): void {
    if (partition.deliveries.size > 0 || !this.#leaving.has(partition)) return;
    void this.#finishRelease(partition);
  }

  abandonAll(): void {
    for (const partition of this.#held.values()) {
      this.#leaving.get(partition)?.();
      partition.abandon();
    }
    this.#leaving.clear();
    this.#held.clear();
  }

  #startRelease(partition: AssignedPartition): void {
    if (this.#leaving.has(partition)) return;
    partition.leave();
    // A delivery that does not finish in time is aborted. The new owner delivers the record again.
    this.#leaving.set(
      partition,
      after(this.#parts.handOverMs, () => partition.abandonDeliveries()),
    );
    this.noteDeliveryEnd(partition);
  }

  async #finishRelease(partition: AssignedPartition): Promise<void> {
    this.#leaving.get(partition)?.();
    this.#leaving.delete(partition);
    await this.#parts.commit();
    if (this.#held.get(partition.key) !== partition) return;
    this.#held.delete(partition.key);
    partition.abandon();
    this.#parts.onRelease();
  }
}
