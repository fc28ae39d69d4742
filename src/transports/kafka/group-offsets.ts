import { systemClock } from "../../runtime/index.ts";
import type { Offset } from "./coordinator.ts";
import type { KafkaDriver, TopicPartition, TopicView } from "./driver.ts";
import { listOffsets, toTopicPartitions } from "./partition-offsets.ts";

interface Group {
  readonly node: number;
  readonly name: string;
}

const MAX_CONCURRENT_GROUPS = 8;
/** A cluster may have thousands of groups, and hardly any of them reads our topics. */
const GROUP_REFRESH_MS = 30_000;

/** Which of these topics some other group has begun to read. */
export async function findClaimedTopics(
  driver: KafkaDriver,
  views: readonly TopicView[],
  exceptGroup: string,
): Promise<ReadonlySet<string>> {
  const others = (await listAllGroups(driver)).filter(({ name }) => name !== exceptGroup);
  const claimed = new Set<string>();
  await forEachGroup(driver, others, views.flatMap(toTopicPartitions), (_, offsets) => {
    for (const { topic } of offsets) claimed.add(topic);
  });
  return claimed;
}

/** How far the slowest group of a topic is behind. Groups that read none of the topics are asked again only now and then. */
export class GroupLags {
  readonly #driver: KafkaDriver;
  readonly #topics = new Set<string>();
  #readers: readonly Group[] = [];
  #lookedMs = -Infinity;

  constructor(driver: KafkaDriver) {
    this.#driver = driver;
  }

  /** By topic; topics without a group are left out. */
  async findLargestLags(views: readonly TopicView[]): Promise<ReadonlyMap<string, number>> {
    const ends = new Map(
      (await listOffsets(this.#driver, views, "end")).map((end) => [partitionKey(end), end.offset]),
    );
    const groups = await this.#findGroups(views);
    const lags = new Map<string, number>();
    const readers: Group[] = [];
    await forEachGroup(this.#driver, groups, views.flatMap(toTopicPartitions), (group, offsets) => {
      if (offsets.length > 0) readers.push(group);
      for (const [topic, lag] of computeLags(offsets, ends))
        lags.set(topic, Math.max(lag, lags.get(topic) ?? 0));
    });
    this.#readers = readers;
    return lags;
  }

  async #findGroups(views: readonly TopicView[]): Promise<readonly Group[]> {
    const nowMs = systemClock.monotonicMs();
    const isKnown = views.every(({ name }) => this.#topics.has(name));
    if (isKnown && this.#readers.length > 0 && nowMs - this.#lookedMs < GROUP_REFRESH_MS)
      return this.#readers;
    const groups = await listAllGroups(this.#driver);
    this.#lookedMs = nowMs;
    this.#topics.clear();
    for (const { name } of views) this.#topics.add(name);
    return groups;
  }
}

function computeLags(offsets: readonly Offset[], ends: ReadonlyMap<string, number>): Map<string, number> {
  const lags = new Map<string, number>();
  for (const { topic, offset, ...place } of offsets) {
    const behind = Math.max(0, (ends.get(partitionKey({ topic, ...place })) ?? offset) - offset);
    lags.set(topic, (lags.get(topic) ?? 0) + behind);
  }
  return lags;
}

async function listAllGroups(driver: KafkaDriver): Promise<readonly Group[]> {
  const { nodes } = await driver.describe([]);
  const found = await Promise.all(
    nodes.map(async (node) => (await driver.groups(node)).map((name) => ({ node, name }))),
  );
  return found.flat();
}

async function forEachGroup(
  driver: KafkaDriver,
  groups: readonly Group[],
  wanted: readonly TopicPartition[],
  tell: (group: Group, offsets: readonly Offset[]) => void,
): Promise<void> {
  for (let at = 0; at < groups.length; at += MAX_CONCURRENT_GROUPS) {
    await Promise.all(
      groups.slice(at, at + MAX_CONCURRENT_GROUPS).map(async (group) => {
        const asked = { group: group.name, member: null, epoch: -1, wanted };
        tell(group, (await driver.committed("control", group.node, asked)).offsets);
      }),
    );
  }
}

function partitionKey({ topic, partition }: TopicPartition): string {
  return `${topic}/${partition}`;
}
