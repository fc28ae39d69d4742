import type { FetchedPartition, IncomingRecord, TopicPartition } from "./driver.ts";
import type { KafkaDelivery } from "./kafka-delivery.ts";
import { OffsetTracker } from "./offset-tracker.ts";
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
