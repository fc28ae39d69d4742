import type { BrokerObject, BrokerTopology, PlannedGroup } from "../../transport/index.ts";
import type { RabbitSettings } from "./options.ts";
import { rabbitPermissions } from "./permissions.ts";
import { groupNames, offsetQueue, routeFor, sharedExchanges } from "./topology.ts";

/** What `declareGroup` makes for these groups, as a list. */
export function planRabbitTopology(
  { prefix, partitions, broadcasts }: Pick<RabbitSettings, "prefix" | "partitions" | "broadcasts">,
  groups: readonly PlannedGroup[],
): BrokerTopology {
  const objects = new Map<string, BrokerObject>();
  const addObject = (kind: string, name: string, detail: string): void =>
    void objects.set(`${kind} ${name}`, { kind, name, detail });
  for (const planned of groups) {
    const names = groupNames(prefix, planned, planned.ordered ? partitions : undefined);
    for (const { topic, kind } of planned.topics) {
      const route = routeFor(topic, kind, { prefix, broadcasts });
      addObject("exchange", route.exchange, `${route.exchangeType}, durable`);
      if (route.streamQueue === undefined) {
        addObject("binding", `${route.exchange} → ${names.exchange}`, route.binding);
        continue;
      }
      addObject("queue", route.streamQueue, "stream, durable");
      addObject(
        "queue",
        offsetQueue(prefix, names.id, route.streamQueue),
        `how far ${planned.group} has read`,
      );
    }
    addObject(
      "exchange",
      names.exchange,
      `${planned.ordered ? "topic" : "fanout"}, copies for ${planned.group}`,
    );
    if (names.restExchange !== undefined)
      addObject("exchange", names.restExchange, "fanout, messages without a lane");
    for (const queue of names.queues) addObject("queue", queue, `durable, of ${planned.group}`);
    addObject("queue", names.deadLetterQueue, `dead letters of ${planned.group}`);
    addObject("queue", names.membersQueue, `counts the members of ${planned.group}`);
  }
  const shared = sharedExchanges(prefix);
  if (groups.length > 0) {
    addObject("exchange", shared.deadLetter, "direct, shared");
    addObject("exchange", shared.retry, "topic, shared");
    addObject("exchange", shared.back, "topic, shared");
  }
  return {
    objects: [...objects.values()],
    permissions: permissionLines({ prefix, partitions, broadcasts }, groups),
  };
}

function permissionLines(
  { prefix, partitions, broadcasts }: Pick<RabbitSettings, "prefix" | "partitions" | "broadcasts">,
  groups: readonly PlannedGroup[],
): string[] {
  const [first] = groups;
  if (first === undefined) return [];
  const { configure, write, read } = rabbitPermissions({
    service: first.service,
    consumes: groups.map(({ group, topics, ordered }) => ({ group, topics, ordered })),
    prefix,
    partitions,
    broadcasts: [...broadcasts],
  });
  return [`rabbitmqctl set_permissions <user> '${configure}' '${write}' '${read}'`];
}
