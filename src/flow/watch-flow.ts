import type { HandlerOptions, HandlerRegistry } from "../inbox/index.ts";
import { rejectUnknownKeys, text } from "../options/index.ts";
import { quoteSchema } from "../storage/index.ts";
import type { Flow } from "./flow.ts";
import { flowStatements } from "./statements.ts";

export interface WatchOptions {
  /** Default `flow.<name>`. Services with databases of their own that all watch need a name each, else they compete. */
  readonly consumer?: string;
  /** Where a new consumer begins. Default "now": paths that began earlier are seen from their middle. */
  readonly from?: HandlerOptions["from"];
}

/** Registers one consumer for all events of the flow; it records each of them once and does nothing else. */
export function watchFlow(
  registry: HandlerRegistry,
  schema: string,
  flow: Flow,
  options: WatchOptions = {},
): void {
  rejectUnknownKeys("flows.watch", options, ["consumer", "from"]);
  const consumer = text("flows.watch.consumer", options.consumer ?? `flow.${flow.name}`);
  const { record } = flowStatements(quoteSchema(schema));
  for (const contract of flow.events) {
    registry.on(contract, {
      consumer,
      ...(options.from === undefined ? {} : { from: options.from }),
      statement: ({ id, correlationId, type, causationId, source, key, writtenAt }) => ({
        text: record,
        params: [flow.name, id, correlationId, type, causationId, source, key, writtenAt],
      }),
    });
  }
}
