import { systemClock } from "../../runtime/index.ts";
import type { Lag, PlannedGroup } from "../../transport/index.ts";
import { Coordinator, noMembership, type Offset } from "./coordinator.ts";
import type { KafkaDriver, TopicView } from "./driver.ts";
import { listOffsets, toTopicPartitions } from "./group-offsets.ts";
import { codes, codeText } from "./kafka-codes.ts";
import type { KafkaSettings } from "./options.ts";
import type { TopicDirectory } from "./topic-directory.ts";
import type { Topology } from "./topology.ts";

interface LagParts {
  readonly driver: KafkaDriver;
  readonly directory: TopicDirectory;
  readonly topology: Topology;
  readonly settings: Pick<KafkaSettings, "retryStepsMs" | "timeoutMs">;
}

/** Separate connections, because a request for the age of a message may return a large batch. */
const CHANNEL = "lag";
/** If more partitions than this are behind, the age of their oldest message is not looked up. */
const MAX_AGE_LOOKUPS = 100;

/** The records of a partition that a group has not read yet. */
export interface UnreadRange {
  readonly partition: number;
  readonly from: number;
  readonly count: number;
}

/**
 * Finds the unread records of each partition. A partition without a committed offset is read from its beginning, as it
 * was added to the topic later; a group that has committed nothing has not begun, and undefined is returned. Pure.
 */
export function findUnread(
  committed: readonly Pick<Offset, "partition" | "offset">[],
  begins: readonly Pick<Offset, "partition" | "offset">[],
  ends: readonly Pick<Offset, "partition" | "offset">[],
): readonly UnreadRange[] | undefined {
  if (committed.length === 0) return undefined;
  return ends.map(({ partition, offset: end }) => {
    const begin = begins.find((one) => one.partition === partition)?.offset ?? 0;
    const from = Math.max(begin, committed.find((one) => one.partition === partition)?.offset ?? begin);
    return { partition, from, count: Math.max(0, end - from) };
  });
}

/** Measures how far groups are behind. A group whose offsets cannot be read is left out; throws if that is so for all. */
export async function measureGroupLags(
  parts: LagParts,
  groups: readonly PlannedGroup[],
): Promise<readonly Lag[]> {
  const lags: Lag[] = [];
  const failures: unknown[] = [];
  for (const planned of groups) {
    try {
      lags.push(...(await measureGroup(parts, planned)));
    } catch (error) {
      failures.push(error);
    }
  }
  if (failures.length > 0 && failures.length === groups.length) throw failures[0];
  return lags;
}

async function measureGroup(parts: LagParts, planned: PlannedGroup): Promise<readonly Lag[]> {
  const { driver, directory, topology, settings } = parts;
  const { service, group, topics } = planned;
  const retryTopics = (topic: string): string[] =>
    settings.retryStepsMs.map((_, n) => topology.retryTopic(topic, service, group, n + 1));
  const names = topics.flatMap(({ topic }) => [topology.topicName(topic), ...retryTopics(topic)]);
  const views = new Map((await directory.describe([...new Set(names)])).map((view) => [view.name, view]));
  const all = [...views.values()];
  const coordinator = new Coordinator(
    driver,
    topology.groupName(service, group),
    CHANNEL,
    settings.timeoutMs,
  );
  const { code, offsets } = await coordinator.committed(noMembership, all.flatMap(toTopicPartitions));
  if (code === codes.groupNotFound) return [];
  if (code !== codes.none) throw new Error(`group ${coordinator.group}: ${codeText(code)}`);
  const begins = await listOffsets(driver, all, "beginning");
  const ends = await listOffsets(driver, all, "end");
  const findRange = (name: string, committed: readonly Offset[]): readonly UnreadRange[] | undefined => {
    const ofTopic = (found: readonly Offset[]): Offset[] => found.filter(({ topic }) => topic === name);
    return findUnread(committed, ofTopic(begins), ofTopic(ends));
  };
  const lags: Lag[] = [];
  for (const { topic } of topics) {
    const view = views.get(topology.topicName(topic));
    const committed = offsets.filter((offset) => offset.topic === view?.name);
    const unread = view === undefined ? undefined : findRange(view.name, committed);
    if (view === undefined || unread === undefined) continue;
    // The group reads its retry topics in full, from before the first commit.
    const retries = retryTopics(topic)
      .filter((name) => views.has(name))
      .map((name) => {
        const known = offsets.filter((offset) => offset.topic === name);
        const begin = begins.filter((offset) => offset.topic === name);
        return countRecords(findRange(name, known.length === 0 ? begin : known) ?? []);
      });
    const retried = retries.reduce((sum, count) => sum + count, 0);
    const behind = unread.filter(({ count }) => count > 0);
    // When a message in a retry topic is due is not known without reading it.
    const age = behind.length === 0 && retried > 0 ? "unknown" : await findOldestAge(parts, view, behind);
    lags.push({ group, topic, waiting: countRecords(unread) + retried, oldestAgeSeconds: age });
  }
  return lags;
}

function countRecords(ranges: readonly UnreadRange[]): number {
  return ranges.reduce((sum, { count }) => sum + count, 0);
}

/** Reads the first unread batch of each partition. The age is unknown if one of them cannot be read. */
async function findOldestAge(
  { driver }: LagParts,
  { id, partitions }: TopicView,
  behind: readonly UnreadRange[],
): Promise<Lag["oldestAgeSeconds"]> {
  if (behind.length > MAX_AGE_LOOKUPS) return "unknown";
  let oldestMs = Infinity;
  for (const { partition, from } of behind) {
    const leader = partitions[partition]?.leader ?? -1;
    const wanted = { topicId: id, partition, offset: from, maxBytes: 1 }; // the broker answers with one batch at least
    const request = { waitMs: 0, maxBytes: 1, partitions: [wanted] };
    const [found] = await driver.fetch(CHANNEL, leader, request).catch(() => []);
    if (found?.code !== codes.none || found.firstSentMs === undefined) return "unknown";
    oldestMs = Math.min(oldestMs, found.firstSentMs);
  }
  if (behind.length === 0) return 0;
  return Math.max(0, Math.round((systemClock.wallMs() - oldestMs) / 100) / 10);
}
