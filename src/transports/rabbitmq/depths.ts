import type { Channel } from "amqplib";
import { unreachable, type Link, type Live } from "./connection.ts";

interface Group {
  readonly topics: readonly string[];
  readonly queues: readonly string[];
}

/** A group's queues hold all its topics together, so the depth of each is at most what is told. */
export async function depthsOf(
  link: Link,
  topics: readonly string[],
  groups: readonly Group[],
): Promise<ReadonlyMap<string, number>> {
  const { live } = link;
  if (live === undefined) throw unreachable(`RabbitMQ cannot be reached: ${link.trouble}`);
  const depths = new Map<string, number>();
  for (const group of groups) {
    const asked = group.topics.filter((topic) => topics.includes(topic));
    if (asked.length === 0) continue;
    const depth = await depthOf(link, live, group.queues);
    if (depth === undefined) continue;
    for (const topic of asked) depths.set(topic, Math.max(depth, depths.get(topic) ?? 0));
  }
  return depths;
}

/**
 * At least so many wait. A queue that is missing, or whose node is down, tells nothing: the others still count, and when
 * they are empty, or there are none, nothing is known.
 */
async function depthOf(link: Link, live: Live, queues: readonly string[]): Promise<number | undefined> {
  let depth = 0;
  let silent = 0;
  let channel: Channel | undefined;
  for (const queue of queues) {
    channel ??= await link.channel(live);
    try {
      depth += (await link.ask(live, "counting messages", channel.checkQueue(queue))).messageCount;
    } catch (error) {
      if (!(error instanceof Error && "code" in error && error.code === 404)) throw error;
      silent += 1;
      channel = undefined; // asking for what is not there costs the channel
    }
  }
  if (channel !== undefined) await link.ask(live, "closing a channel", channel.close());
  return silent > 0 && depth === 0 ? undefined : depth;
}
