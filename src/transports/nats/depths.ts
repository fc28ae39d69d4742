import type { Session } from "./link.ts";
import type { NatsSettings } from "./options.ts";
import { messageSubject, readConsumerName, streamNames } from "./topology.ts";

/** How many messages of each topic wait for their slowest group, the unsettled ones included. */
export async function readDepths(
  { jsm }: Session,
  { prefix }: NatsSettings,
  topics: readonly string[],
): Promise<ReadonlyMap<string, number>> {
  const topicBySubject = new Map(topics.map((topic) => [messageSubject(prefix, topic, "*"), topic]));
  const last = new Map<string, { topic: string; group: string; epoch: number; waiting: number }>();
  for await (const info of jsm.consumers.list(streamNames(prefix).messages)) {
    const name = readConsumerName(info.name);
    const topic = topicBySubject.get((info.config.filter_subject ?? "").replace(/\.[^.]+$/, ".*"));
    if (name === undefined || topic === undefined) continue;
    const { group, partition, epoch } = name;
    const place = `${group}/${partition}`;
    // Of two terms the later counts; the former is about to be deleted.
    if ((last.get(place)?.epoch ?? -1) > epoch) continue;
    last.set(place, { topic, group, epoch, waiting: info.num_pending + info.num_ack_pending });
  }
  const groups = new Map<string, { topic: string; waiting: number }>();
  for (const { topic, group, waiting } of last.values()) {
    groups.set(group, { topic, waiting: (groups.get(group)?.waiting ?? 0) + waiting });
  }
  const depths = new Map(topics.map((topic) => [topic, 0]));
  for (const { topic, waiting } of groups.values()) {
    depths.set(topic, Math.max(depths.get(topic) ?? 0, waiting));
  }
  return depths;
}
