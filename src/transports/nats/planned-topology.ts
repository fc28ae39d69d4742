import type { BrokerObject, BrokerTopology, PlannedGroup } from "../../transport/index.ts";
import type { NatsSettings } from "./options.ts";
import { natsPermissions } from "./permissions.ts";
import { groupNames, messageSubject, streamNames } from "./topology.ts";

/** The streams of the prefix, and what these groups read of them. */
export function planNatsTopology(
  { prefix, partitions, replicas }: Pick<NatsSettings, "prefix" | "partitions" | "replicas">,
  groups: readonly PlannedGroup[],
): BrokerTopology {
  const streams = streamNames(prefix);
  const copies = `${replicas} ${replicas === 1 ? "copy" : "copies"}`;
  const objects: BrokerObject[] = [
    {
      kind: "stream",
      name: streams.messages,
      detail: `${prefix}.msg.>, ${partitions} partitions, ${copies}`,
    },
    { kind: "stream", name: streams.retries, detail: `${prefix}.retry.>, ${copies}` },
    { kind: "stream", name: streams.dead, detail: `${prefix}.dlq.>, ${copies}` },
    { kind: "stream", name: streams.groups, detail: `${prefix}.group.> and ${prefix}.topic.>, ${copies}` },
  ];
  for (const { service, group, topics, ordered } of groups) {
    const names = groupNames(prefix, service, group);
    for (const { topic } of topics) {
      objects.push({ kind: "subject", name: messageSubject(prefix, topic, "*"), detail: `read by ${group}` });
      const consumer = ordered
        ? names.partitionConsumer(topic, 0, 1).replace("-p0-e1", "-p*-e*")
        : names.sharedConsumer(topic);
      objects.push({ kind: "consumer", name: consumer, detail: `of ${group}` });
    }
  }
  const [first] = groups;
  const permissions =
    first === undefined
      ? []
      : [
          `permissions = ${JSON.stringify(natsPermissions({ service: first.service, role: "worker", prefix }))}`,
        ];
  return { objects, permissions };
}
