import type { BrokerObject, BrokerTopology, PlannedGroup } from "../../transport/index.ts";
import type { KafkaSettings } from "./options.ts";
import { kafkaAclArguments, kafkaPermissions } from "./permissions.ts";
import { planTopic, type TopicPurpose } from "./topic-directory.ts";
import { Topology } from "./topology.ts";

/** The topics and groups that these consumers need. Replication counts for a cluster of three or more. */
export function planKafkaTopology(
  { prefix, topics: settings, retryStepsMs }: Pick<KafkaSettings, "prefix" | "topics" | "retryStepsMs">,
  groups: readonly PlannedGroup[],
): BrokerTopology {
  const names = new Topology(prefix);
  const objects = new Map<string, BrokerObject>();
  const addTopic = (name: string, purpose: TopicPurpose): void => {
    const { partitions, replication } = planTopic(name, purpose, settings, 3);
    objects.set(name, {
      kind: "topic",
      name,
      detail: `${purpose}, ${partitions} partitions, ${replication} copies`,
    });
  };
  for (const { service, group, topics } of groups) {
    for (const one of topics) {
      addTopic(names.topicName(one.topic), "messages");
      addTopic(names.deadLetterTopic(one.topic), "dead letters");
      retryStepsMs.forEach((_, n) => addTopic(names.retryTopic(one.topic, service, group, n + 1), "retry"));
    }
    const name = names.groupName(service, group);
    objects.set(`group ${name}`, { kind: "group", name, detail: `${topics.length} topic(s)` });
  }
  const [first] = groups;
  const permissions =
    first === undefined || prefix === undefined || prefix === ""
      ? []
      : kafkaAclArguments(kafkaPermissions({ principal: `User:${first.service}`, prefix }));
  return {
    objects: [...objects.values()],
    permissions: permissions.map((line) => `kafka-acls.sh --add ${line}`),
  };
}
