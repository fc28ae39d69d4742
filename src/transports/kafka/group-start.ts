import type { Subscription, TopicRequest } from "../../transport/index.ts";
import { codes, codeText } from "./kafka-codes.ts";
import { noMembership, type Coordinator, type Membership, type Offset } from "./coordinator.ts";
import type { KafkaDriver, TopicView } from "./driver.ts";
import { findClaimedTopics } from "./group-offsets.ts";
import { listOffsets, toTopicPartitions } from "./partition-offsets.ts";
import type { TopicDirectory } from "./topic-directory.ts";
import type { Topology } from "./topology.ts";

interface Parts {
  readonly driver: KafkaDriver;
  readonly directory: TopicDirectory;
  readonly topology: Topology;
  readonly coordinator: Coordinator;
}

/**
 * Where a group begins that is new to a topic is written down before its first member reads, for all partitions in
 * one commit: from then on nothing is missed, whoever crashes. While the group has members only a member may commit;
 * the offsets are then returned, to be committed right after joining.
 */
export async function prepareGroup(parts: Parts, subscription: Subscription): Promise<readonly Offset[]> {
  const { directory, topology, coordinator } = parts;
  const views = new Map<TopicRequest, TopicView>();
  for (const request of subscription.topics)
    views.set(request, await directory.ensure(topology.topicName(request.topic)));
  const known = await coordinator.committed(noMembership, [...views.values()].flatMap(toTopicPartitions));
  if (known.code !== codes.none && known.code !== codes.groupNotFound)
    throw new Error(`group ${coordinator.group}: ${codeText(known.code)}`);
  const read = new Set(known.offsets.map(({ topic }) => topic));
  const starts: Offset[] = [];
  for (const [request, view] of views)
    if (!read.has(view.name)) starts.push(...(await findStart(parts, request, view)));
  if (starts.length === 0) return [];
  return (await commitStarts(coordinator, noMembership, starts)) ? [] : starts;
}

/** As a member; false when the broker knows us by another epoch by now. */
export async function commitStarts(
  coordinator: Coordinator,
  membership: Membership,
  starts: readonly Offset[],
): Promise<boolean> {
  const answers = await coordinator.commit(membership, starts);
  const failed = answers.find(({ code }) => code !== codes.none);
  if (failed === undefined) return true;
  const known: readonly number[] = [codes.unknownMember, codes.staleMember, codes.fencedMember];
  if (known.includes(failed.code)) return false;
  throw new Error(`group ${coordinator.group} cannot begin: ${codeText(failed.code)}`);
}

async function findStart(
  { driver, coordinator }: Parts,
  { from }: TopicRequest,
  view: TopicView,
): Promise<readonly Offset[]> {
  if (typeof from === "object") return findStartAtTime(driver, view, from.time);
  const claimed =
    from === "unclaimed" && (await findClaimedTopics(driver, [view], coordinator.group)).size > 0;
  const at = from === "now" || claimed ? "end" : "beginning";
  return listOffsets(driver, [view], at);
}

// The end is asked for first: a record that comes in between is then found by its time, and none is passed over.
async function findStartAtTime(driver: KafkaDriver, view: TopicView, time: Date): Promise<readonly Offset[]> {
  const ends = await listOffsets(driver, [view], "end");
  const found = await listOffsets(driver, [view], { timeMs: Math.max(0, time.getTime()) });
  const offsets = new Map(found.map(({ partition, offset }) => [partition, offset]));
  return ends.map((end) => {
    const offset = offsets.get(end.partition) ?? -1;
    return offset < 0 ? end : { ...end, offset };
  });
}
