import { HandlerRegistry } from "../inbox/index.ts";
import type { BrokerTopology, PlannedGroup } from "../transport/index.ts";
import type { Parts } from "./parts.ts";

/** What a service consumes, and what is made at the broker for it. */
export interface BusTopology extends BrokerTopology {
  readonly service: string;
  readonly transport: string;
  readonly groups: readonly PlannedGroup[];
}

/** What is published is not in it: that shows only when something is. Nor are replies, which begin with the first request. */
export function describeTopology(
  { settings, transport, sagas }: Pick<Parts, "settings" | "transport" | "sagas">,
  registry: HandlerRegistry,
): BusTopology {
  const { service } = settings;
  const heard = new HandlerRegistry(settings.routing);
  sagas.describe(heard);
  const own = registry.consumers();
  const more = heard.consumers().filter(({ name }) => !own.some((consumer) => consumer.name === name));
  const groups = [...own, ...more].map(({ name, settings: { ordered }, handlers }) => {
    const topics = new Map([...handlers.values()].map(({ topic, contract }) => [topic, contract.kind]));
    return { service, group: name, ordered, topics: [...topics].map(([topic, kind]) => ({ topic, kind })) };
  });
  const declared = transport.declares?.(groups) ?? { objects: [], permissions: [] };
  return { service, transport: transport.name, groups, ...declared };
}
