import type { KafkaDriver, TopicView } from "./driver.ts";
import { listOffsets, partitionsOf } from "./partition-offsets.ts";
import type { Offset } from "./coordinator.ts";

const AT_ONCE = 8;

/** Which of these topics some other group has begun to read. */
export async function claimedTopics(
  driver: KafkaDriver,
  views: readonly TopicView[],
  exceptGroup: string,
): Promise<ReadonlySet<string>> {
  const claimed = new Set<string>();
  await eachGroup(driver, views, (group, offsets) => {
    if (group !== exceptGroup) for (const { topic } of offsets) claimed.add(topic);
  });
  return claimed;
}

/** By topic, how far its slowest group is behind; topics without a group are left out. */
export async function slowestLags(
  driver: KafkaDriver,
  views: readonly TopicView[],
): Promise<ReadonlyMap<string, number>> {
  const ends = new Map(
    (await listOffsets(driver, views, "end")).map(({ topic, partition, offset }) => [
      `${topic}/${partition}`,
      offset,
    ]),
  );
  const lags = new Map<string, number>();
  await eachGroup(driver, views, (_, offsets) => {
    const own = new Map<string, number>();
    for (const { topic, partition, offset } of offsets) {
      const behind = Math.max(0, (ends.get(`${topic}/${partition}`) ?? offset) - offset);
      own.set(topic, (own.get(topic) ?? 0) + behind);
    }
    for (const [topic, lag] of own) lags.set(topic, Math.max(lag, lags.get(topic) ?? 0));
  });
  return lags;
}

async function eachGroup(
  driver: KafkaDriver,
  views: readonly TopicView[],
  tell: (group: string, offsets: readonly Offset[]) => void,
): Promise<void> {
  const wanted = views.flatMap(partitionsOf);
  const { nodes } = await driver.describe([]);
  for (const node of nodes) {
    const groups = [...(await driver.groups(node))];
    while (groups.length > 0) {
      await Promise.all(
        groups.splice(0, AT_ONCE).map(async (group) => {
          const { offsets } = await driver.committed("control", node, {
            group,
            member: null,
            epoch: -1,
            wanted,
          });
          tell(group, offsets);
        }),
      );
    }
  }
}
