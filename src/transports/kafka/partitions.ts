import { after, type CancelTimer } from "../../runtime/index.ts";
import type { AssignedPartition } from "./assigned-partition.ts";
import type { OwnedPartitions } from "./driver.ts";
import { groupByTopic } from "./wire-forms.ts";

interface PartitionsParts {
  readonly handOverMs: number;
  readonly commit: () => Promise<void>;
  /** We hold less than before: the group should hear of it. */
  readonly changed: () => void;
}

/** The partitions we hold. One that is taken away is kept until what was handed out of it has ended. */
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

  /** Takes what is new and begins to give away what is no longer ours. */
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

  /** A delivery of it has ended: it may have been the last one. */
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
    // What cannot be finished in time is aborted; it comes again at its new owner.
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
    this.#parts.changed();
  }
}
