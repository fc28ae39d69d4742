import { systemClock } from "../../runtime/index.ts";
import type { Offset } from "./coordinator.ts";
import type { KafkaDriver, TopicPartition, TopicView } from "./driver.ts";
import { listOffsets, partitionsOf } from "./partition-offsets.ts";

interface Group {
  readonly node: number;
  readonly name: string;
}

const AT_ONCE = 8;
/** A cluster may have thousands of groups, and hardly any of them reads our topics. */
const LOOK_AGAIN_MS = 30_000;

/** Which of these topics some other group has begun to read. */
export async function claimedTopics(
  driver: KafkaDriver,
  views: readonly TopicView[],
  exceptGroup: string,
): Promise<ReadonlySet<string>> {
  const others = (await allGroups(driver)).filter(({ name }) => name !== exceptGroup);
  const claimed = new Set<string>();
  await eachGroup(driver, others, views.flatMap(partitionsOf), (_, offsets) => {
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
  async slowest(views: readonly TopicView[]): Promise<ReadonlyMap<string, number>> {
    const ends = new Map(
      (await listOffsets(this.#driver, views, "end")).map((end) => [placeOf(end), end.offset]),
    );
    const groups = await this.#groups(views);
    const lags = new Map<string, number>();
    const readers: Group[] = [];
    await eachGroup(this.#driver, groups, views.flatMap(partitionsOf), (group, offsets) => {
      if (offsets.length > 0) readers.push(group);
      for (const [topic, lag] of lagsOf(offsets, ends)) lags.set(topic, Math.max(lag, lags.get(topic) ?? 0));
    });
    this.#readers = readers;
    return lags;
  }

  async #groups(views: readonly TopicView[]): Promise<readonly Group[]> {
    const nowMs = systemClock.monotonicMs();
    const isKnown = views.every(({ name }) => this.#topics.has(name));
    if (isKnown && this.#readers.length > 0 && nowMs - this.#lookedMs < LOOK_AGAIN_MS) return this.#readers;
    const groups = await allGroups(this.#driver);
    this.#lookedMs = nowMs;
    this.#topics.clear();
    for (const { name } of views) this.#topics.add(name);
    return groups;
  }
}

function lagsOf(offsets: readonly Offset[], ends: ReadonlyMap<string, number>): Map<string, number> {
  const lags = new Map<string, number>();
  for (const { topic, offset, ...place } of offsets) {
    const behind = Math.max(0, (ends.get(placeOf({ topic, ...place })) ?? offset) - offset);
    lags.set(topic, (lags.get(topic) ?? 0) + behind);
  }
  return lags;
}

async function allGroups(driver: KafkaDriver): Promise<readonly Group[]> {
  const { nodes } = await driver.describe([]);
  const found = await Promise.all(
    nodes.map(async (node) => (await driver.groups(node)).map((name) => ({ node, name }))),
  );
  return found.flat();
}

async function eachGroup(
  driver: KafkaDriver,
  groups: readonly Group[],
  wanted: readonly TopicPartition[],
  tell: (group: Group, offsets: readonly Offset[]) => void,
): Promise<void> {
  for (let at = 0; at < groups.length; at += AT_ONCE) {
    await Promise.all(
      groups.slice(at, at + AT_ONCE).map(async (group) => {
        const asked = { group: group.name, member: null, epoch: -1, wanted };
        tell(group, (await driver.committed("control", group.node, asked)).offsets);
      }),
    );
  }
}

function placeOf({ topic, partition }: TopicPartition): string {
  return `${topic}/${partition}`;
}
