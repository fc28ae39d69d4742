import { HandlerRegistry } from "../inbox/index.ts";
import type { BrokerTopology, PlannedGroup } from "../transport/index.ts";
import type { Parts } from "./parts.ts";

/** The topics that a service consumes, and the broker objects and permissions they need. */
export interface BusTopology extends BrokerTopology {
  readonly service: string;
  readonly transport: string;
  readonly groups: readonly PlannedGroup[];
}

/** Describes consumed topics only. Published topics are known at publish time, and the reply topic at the first request. */
export function describeTopology(
  { settings, transport, sagas }: Pick<Parts, "settings" | "transport" | "sagas">,
  registry: HandlerRegistry,
): BusTopology {
  const { service } = settings;
  const sagaRegistry = new HandlerRegistry(settings.routing);
  sagas.describe(sagaRegistry);
  const own = registry.consumers();
  const more = sagaRegistry.consumers().filter(({ name }) => !own.some((consumer) => consumer.name === name));
  const groups = [...own, ...more].map(({ name, settings: { ordered }, handlers }) => {
    const topics = new Map([...handlers.values()].map(({ topic, contract }) => [topic, contract.kind]));
    return { service, group: name, ordered, topics: [...topics].map(([topic, kind]) => ({ topic, kind })) };
  });
  const declared = transport.declares?.(groups) ?? { objects: [], permissions: [] };
  return { service, transport: transport.name, groups, ...declared };
}
