import type { HandlerOptions, HandlerRegistry } from "../inbox/index.ts";
import { rejectUnknownKeys, text } from "../options/index.ts";
import { quoteSchema } from "../storage/index.ts";
import type { Flow } from "./flow.ts";
import { flowStatements } from "./statements.ts";

export interface WatchOptions {
  /** Consumer name. Default `flow.<name>`. Services with separate databases need different names, else they compete. */
  readonly consumer?: string;
  /** Start position of a new consumer. Default "now": earlier events of running paths are not recorded. */
  readonly from?: HandlerOptions["from"];
}

/** Registers a consumer that records each event of the flow once. */
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
