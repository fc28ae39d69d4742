import { Loop } from "../../runtime/index.ts";
import type { AssignedPartition } from "./assigned-partition.ts";
import type { Coordinator, Offset } from "./coordinator.ts";
import type { KafkaDriver } from "./driver.ts";
import { commitStarts } from "./group-start.ts";
import type { GroupMember } from "./group-member.ts";
import { codes, codeText } from "./kafka-codes.ts";
import { listOffsets } from "./partition-offsets.ts";
import type { TopicDirectory } from "./topic-directory.ts";

interface StarterParts {
  readonly driver: KafkaDriver;
  readonly directory: TopicDirectory;
  readonly coordinator: Coordinator;
  readonly member: GroupMember;
  readonly partitions: () => Iterable<AssignedPartition>;
  readonly started: () => void;
}

/** An epoch that changed under our hands is known after the next heartbeat. */
const NEXT_EPOCH_MS = 50;

/** Finds out where to go on in partitions that were just assigned. */
export class PartitionStarter {
  readonly #parts: StarterParts;
  readonly #loop: Loop;
  #lastError: unknown;
  #pending: readonly Offset[] = [];
  #pendingListeners: (() => void)[] = [];

  constructor(parts: StarterParts) {
    this.#parts = parts;
    this.#loop = new Loop({
      step: () => this.#step(),
      onError: (error) => (this.#lastError = error),
      maxBackoffMs: 1_000,
    });
  }

  get trouble(): unknown {
    return this.#lastError;
  }

  /** Offsets that the group begins at; committed before any partition is read. */
  async start(pending: readonly Offset[]): Promise<void> {
    this.#pending = pending;
    await this.#loop.start();
  }

  /** Resolves when the beginning of the group is written down. */
  waitForPending(): Promise<void> {
    if (this.#pending.length === 0) return Promise.resolve();
    return new Promise((resolve) => this.#pendingListeners.push(resolve));
  }

  wake(): void {
    this.#loop.wake();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  async #step(): Promise<number> {
    if (!this.#parts.member.isMember) return Infinity;
    if (!(await this.#commitPending())) return NEXT_EPOCH_MS;
    const starting = [...this.#parts.partitions()].filter(({ state }) => state === "starting");
    if (starting.length === 0) return Infinity;
    const { coordinator, member } = this.#parts;
    const known = await coordinator.committed(member.membership, starting);
    if (known.code === codes.staleMember) return NEXT_EPOCH_MS;
    if (known.code !== codes.none) throw new Error(`group ${coordinator.group}: ${codeText(known.code)}`);
    const places = toOffsetMap(known.offsets);
    const fresh = starting.filter((partition) => !places.has(partitionKey(partition)));
    if (fresh.length > 0 && !(await this.#startAtBeginning(fresh, places))) return NEXT_EPOCH_MS;
    for (const partition of starting) {
      const offset = places.get(partitionKey(partition));
      if (offset !== undefined && partition.state === "starting") partition.begin(offset);
    }
    this.#lastError = undefined;
    this.#parts.started();
    return 0;
  }

  // A member that came at the same moment may have been faster; what it wrote down is as good as ours.
  async #commitPending(): Promise<boolean> {
    if (this.#pending.length === 0) return true;
    const { coordinator, member } = this.#parts;
    const known = await coordinator.committed(member.membership, this.#pending);
    if (known.code === codes.staleMember) return false;
    const begun = new Set(known.offsets.map(({ topic }) => topic));
    const missing = this.#pending.filter(({ topic }) => !begun.has(topic));
    if (missing.length > 0 && !(await commitStarts(coordinator, member.membership, missing))) return false;
    this.#pending = [];
    for (const tell of this.#pendingListeners.splice(0)) tell();
    return true;
  }

  // A partition that was added to a topic we know already, or a retry topic: everything in it is for us.
  async #startAtBeginning(
    fresh: readonly AssignedPartition[],
    places: Map<string, number>,
  ): Promise<boolean> {
    const { driver, directory, coordinator, member } = this.#parts;
    const names = [...new Set(fresh.map(({ topic }) => topic))];
    const first = toOffsetMap(await listOffsets(driver, await directory.describe(names), "beginning"));
    const starts = fresh.map(({ topic, partition }) => ({
      topic,
      partition,
      offset: first.get(partitionKey({ topic, partition })) ?? 0,
    }));
    if (!(await commitStarts(coordinator, member.membership, starts))) return false;
    for (const start of starts) places.set(partitionKey(start), start.offset);
    return true;
  }
}

function partitionKey({ topic, partition }: { readonly topic: string; readonly partition: number }): string {
  return `${topic}/${partition}`;
}

function toOffsetMap(offsets: readonly Offset[]): Map<string, number> {
  return new Map(offsets.map((found) => [partitionKey(found), found.offset]));
}
