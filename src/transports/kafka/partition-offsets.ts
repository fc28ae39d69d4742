import type { Offset } from "./coordinator.ts";
import type { KafkaDriver, OffsetAt, TopicPartition, TopicView } from "./driver.ts";
import { codes, codeText } from "./kafka-codes.ts";

/** The offset of every partition at this place. */
export async function listOffsets(
  driver: KafkaDriver,
  views: readonly TopicView[],
  at: OffsetAt,
): Promise<readonly Offset[]> {
  const byLeader = new Map<number, TopicPartition[]>();
  for (const { name, partitions } of views) {
    for (const [partition, { leader }] of partitions.entries())
      byLeader.set(leader, [...(byLeader.get(leader) ?? []), { topic: name, partition }]);
  }
  const answers = await Promise.all([...byLeader].map(([node, wanted]) => driver.offsets(node, at, wanted)));
  const failed = answers.flat().find(({ code }) => code !== codes.none);
  if (failed !== undefined) throw new Error(`the offsets of "${failed.topic}": ${codeText(failed.code)}`);
  return answers.flat();
}

export function toTopicPartitions({ name, partitions }: TopicView): TopicPartition[] {
  return partitions.map((_, partition) => ({ topic: name, partition }));
}
