import { Loop } from "../../runtime/index.ts";
import type { AssignedPartition } from "./assigned-partition.ts";
import type { FetchedPartition, KafkaDriver } from "./driver.ts";
import { codes, isStaleView, codeText } from "./kafka-codes.ts";
import { listOffsets } from "./partition-offsets.ts";
import type { TopicDirectory } from "./topic-directory.ts";

interface FetcherParts {
  readonly driver: KafkaDriver;
  readonly directory: TopicDirectory;
  readonly lane: string;
  readonly waitMs: number;
  /** A partition with fewer records at hand than this is read on. */
  readonly atLeast: number;
  readonly partitions: () => Iterable<AssignedPartition>;
  readonly fetched: () => void;
  readonly warn: (warning: string) => void;
}

interface FetchPosition {
  readonly partition: AssignedPartition;
  readonly from: number;
}

const NO_LEADER = -1;
const PARTITION_BYTES = 1_048_576;
const REQUEST_BYTES = 8_388_608;
const NO_LEADER_MS = 250;

/** One loop for each broker that leads partitions of ours; partitions with enough at hand are left out of its requests. */
export class Fetcher {
  readonly #parts: FetcherParts;
  readonly #loops = new Map<number, Loop>();
  #lastError: unknown;
  #stopped = false;

  constructor(parts: FetcherParts) {
    this.#parts = parts;
  }

  get trouble(): unknown {
    return this.#lastError;
  }

  /** Something may be read that could not be read before. */
  wake(): void {
    if (this.#stopped) return;
    for (const partition of this.#parts.partitions()) this.#startLoop(this.#findLeader(partition));
    for (const loop of this.#loops.values()) loop.wake();
  }

  async stop(): Promise<void> {
    this.#stopped = true;
    this.#parts.driver.drop(this.#parts.lane);
    await Promise.all([...this.#loops.values()].map((loop) => loop.stop()));
  }

  #startLoop(node: number): void {
    if (this.#loops.has(node)) return;
    const loop = new Loop({
      step: () => (node === NO_LEADER ? this.#findLeaders() : this.#fetchFrom(node)),
      onError: (error) => this.#recordError(error),
      maxBackoffMs: 2_000,
    });
    this.#loops.set(node, loop);
    void loop.start();
  }

  #findLeader({ topic, partition }: AssignedPartition): number {
    return this.#parts.directory.findKnown(topic)?.partitions[partition]?.leader ?? NO_LEADER;
  }

  #findReadable(node: number): AssignedPartition[] {
    return [...this.#parts.partitions()].filter(
      (partition) => partition.hasRoomFor(this.#parts.atLeast) && this.#findLeader(partition) === node,
    );
  }

  async #fetchFrom(node: number): Promise<number> {
    const hungry = this.#findReadable(node);
    if (hungry.length === 0) return Infinity;
    const { driver, lane, waitMs } = this.#parts;
    const asked = new Map<string, FetchPosition>(
      hungry.map((partition) => [partition.key, { partition, from: partition.position }]),
    );
    const fetched = await driver.fetch(lane, node, {
      waitMs,
      maxBytes: REQUEST_BYTES,
      partitions: hungry.map(({ topicId, partition, position }) => ({
        topicId,
        partition,
        offset: position,
        maxBytes: PARTITION_BYTES,
      })),
    });
    this.#lastError = undefined;
    let odd = false;
    for (const found of fetched) {
      const question = asked.get(`${found.topicId}/${found.partition}`);
      if (question === undefined) continue;
      if (found.code === codes.none) question.partition.take(found, question.from);
      else odd = (await this.#repair(question, found)) || odd;
    }
    this.#parts.fetched();
    return odd ? NO_LEADER_MS : 0;
  }

  async #repair({ partition, from }: FetchPosition, found: FetchedPartition): Promise<boolean> {
    const { directory, driver, warn } = this.#parts;
    const { topic } = partition;
    if (found.code === codes.offsetOutOfRange) {
      const view = directory.findKnown(topic);
      const first = view === undefined ? [] : await listOffsets(driver, [view], "beginning");
      const offset = first.find((start) => start.partition === partition.partition)?.offset ?? found.logStart;
      warn(
        `Topic "${topic}", partition ${partition.partition}: offset ${from} is not in the log any more; ` +
          `reading goes on at ${offset}. The topic's retention is shorter than the consumer was away.`,
      );
      partition.restart(offset, from);
      return true;
    }
    if (isStaleView(found.code)) await directory.describe([topic]);
    else this.#lastError = new Error(`topic "${topic}": ${codeText(found.code)}`);
    this.wake();
    return true;
  }

  async #findLeaders(): Promise<number> {
    const lost = [...this.#parts.partitions()].filter(
      (partition) => this.#findLeader(partition) === NO_LEADER,
    );
    if (lost.length === 0) return Infinity;
    await this.#parts.directory.describe([...new Set(lost.map(({ topic }) => topic))]);
    this.wake();
    return NO_LEADER_MS;
  }

  // The broker may be gone for good and its partitions led elsewhere.
  #recordError(error: unknown): void {
    this.#lastError = error;
    const topics = [...new Set([...this.#parts.partitions()].map(({ topic }) => topic))];
    if (topics.length === 0 || this.#stopped) return;
    this.#parts.directory.describe(topics).then(
      () => this.wake(),
      () => undefined,
    );
  }
}
