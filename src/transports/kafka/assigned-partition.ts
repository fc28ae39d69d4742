import type { FetchedPartition, IncomingRecord, TopicPartition } from "./driver.ts";
import type { KafkaDelivery } from "./kafka-delivery.ts";
import { OffsetLine } from "./offset-line.ts";
import { dueOf } from "./record-headers.ts";

/** Where the records of a topic belong. */
export interface Source {
  /** The topic of the messages, without prefix or suffix. */
  readonly topic: string;
  readonly retries: boolean;
}

/** starting: asks where to begin · open · leaving: finishes what is handed out · gone: somebody else has it. */
export type PartitionState = "starting" | "open" | "leaving" | "gone";

export interface Waiting {
  readonly record: IncomingRecord;
  /** 0, or when it may be handed out. */
  readonly dueMs: number;
}

/** How far reading may run ahead of the first record that is not done. */
const WINDOW = 5_000;

/** A partition that is ours for now: what was read of it, what is handed out, and what is done. */
export class AssignedPartition implements TopicPartition {
  readonly topic: string;
  readonly topicId: string;
  readonly partition: number;
  readonly source: Source;
  readonly deliveries = new Set<KafkaDelivery>();
  state: PartitionState = "starting";
  #line = new OffsetLine(0);
  #position = 0;
  /** By due time, then by offset. */
  #waiting: Waiting[] = [];

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

  get line(): OffsetLine {
    return this.#line;
  }

  begin(offset: number): void {
    this.#line = new OffsetLine(offset);
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
    this.loseDeliveries();
    this.begin(offset);
  }

  wants(atLeast: number): boolean {
    if (this.state !== "open" || this.#line.length >= WINDOW) return false;
    return this.#waiting.length < (this.source.retries ? WINDOW : atLeast);
  }

  /** Takes over what was fetched from `asked` on; an answer to an older question is dropped. */
  take(fetched: FetchedPartition, asked: number): void {
    if (this.state !== "open" || asked !== this.#position || fetched.next === undefined) return;
    for (const record of fetched.records) {
      this.#line.open(record.offset);
      this.#insert({ record, dueMs: this.source.retries ? dueOf(record.headers) : 0 });
    }
    this.#line.skipTo(fetched.next);
    this.#position = fetched.next;
  }

  /** What may be handed out at this moment. */
  next(nowMs: number): Waiting | undefined {
    const first = this.#waiting[0];
    if (this.state !== "open" || first === undefined || first.dueMs > nowMs) return undefined;
    return this.#waiting.shift();
  }

  /** When the next one may be handed out. */
  nextDueMs(): number {
    return this.state === "open" ? (this.#waiting[0]?.dueMs ?? Infinity) : Infinity;
  }

  giveBack(waiting: Waiting): void {
    if (this.state === "open") this.#insert({ record: waiting.record, dueMs: 0 });
  }

  /** Stops reading. What is waiting will be read by the next owner. */
  leave(): void {
    if (this.state === "open" || this.state === "starting") this.state = "leaving";
    this.#waiting = [];
  }

  lose(): void {
    this.state = "gone";
    this.#waiting = [];
    this.loseDeliveries();
  }

  loseDeliveries(): void {
    // Losing a delivery takes it out of the set, so the set is copied first.
    Array.from(this.deliveries).forEach((delivery) => delivery.lose());
  }

  #insert(waiting: Waiting): void {
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

function isBefore(a: Waiting, b: Waiting): boolean {
  return a.dueMs < b.dueMs || (a.dueMs === b.dueMs && a.record.offset < b.record.offset);
}
