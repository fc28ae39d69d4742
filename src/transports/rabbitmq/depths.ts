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
    for (const topic of asked) depths.set(topic, Math.max(depth, depths.get(topic) ?? 0));
  }
  return depths;
}

// A queue that nobody has declared yet holds nothing; asking for it costs the channel.
async function depthOf(link: Link, live: Live, queues: readonly string[]): Promise<number> {
  const channel = await link.channel(live);
  try {
    let depth = 0;
    for (const queue of queues) {
      depth += (await link.ask(live, "counting messages", channel.checkQueue(queue))).messageCount;
    }
    await link.ask(live, "closing a channel", channel.close());
    return depth;
  } catch (error) {
    if (error instanceof Error && "code" in error && error.code === 404) return 0;
    throw error;
  }
}
