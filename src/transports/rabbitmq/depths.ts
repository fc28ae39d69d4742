import type { Channel } from "amqplib";
import { unreachableError, type Link, type LiveConnection } from "./link.ts";

interface Group {
  readonly topics: readonly string[];
  readonly queues: readonly string[];
}

/** A group's queues hold all its topics together, so the depth of each is at most what is told. */
export async function readDepths(
  link: Link,
  topics: readonly string[],
  groups: readonly Group[],
): Promise<ReadonlyMap<string, number>> {
  const { live } = link;
  if (live === undefined) throw unreachableError(`RabbitMQ cannot be reached: ${link.trouble}`);
  const depths = new Map<string, number>();
  for (const group of groups) {
    const asked = group.topics.filter((topic) => topics.includes(topic));
    if (asked.length === 0) continue;
    const depth = await readDepth(link, live, group.queues);
    if (depth === undefined) continue;
    for (const topic of asked) depths.set(topic, Math.max(depth, depths.get(topic) ?? 0));
  }
  return depths;
}

/**
 * At least so many wait. A queue that is missing, or whose node is down, tells nothing: the others still count, and when
 * they are empty, or there are none, nothing is known.
 */
async function readDepth(
  link: Link,
  live: LiveConnection,
  queues: readonly string[],
): Promise<number | undefined> {
  let depth = 0;
  let silent = 0;
  let channel: Channel | undefined;
  for (const queue of queues) {
    channel ??= await link.openChannel(live);
    try {
      depth += (await link.request(live, "counting messages", channel.checkQueue(queue))).messageCount;
    } catch (error) {
      if (!(error instanceof Error && "code" in error && error.code === 404)) throw error;
      silent += 1;
      channel = undefined; // asking for what is not there costs the channel
    }
  }
  if (channel !== undefined) await link.request(live, "closing a channel", channel.close());
  return silent > 0 && depth === 0 ? undefined : depth;
}
