import { SagaboxError } from "../../errors/index.ts";
import {
  buildPaths,
  findUnfinished,
  readRecordedEvents,
  type Flow,
  type FlowPath,
  type RecordedEvent,
  type UnfinishedOptions,
} from "../../flow/index.ts";
import type { Database } from "../../storage/index.ts";

/** What was recorded under a correlation id. */
export interface FlowView {
  readonly correlationId: string;
  /** The recorded events of all flows, in the order in which they happened. */
  readonly events: readonly RecordedEvent[];
  /** One path for each of the given flows that has events. */
  readonly paths: readonly FlowPath[];
}

/**
 * Reads the events recorded under a correlation id, and their paths through the given flows. Throws
 * FLOW_PATH_NOT_FOUND if there are no events.
 */
export async function showFlow(
  database: Database,
  schema: string,
  correlationId: string,
  flows: readonly Flow[],
): Promise<FlowView> {
  const events = await readRecordedEvents(database, schema, correlationId);
  if (events.length === 0) {
    throw new SagaboxError(
      "FLOW_PATH_NOT_FOUND",
      `No event of a flow was recorded under the correlation id "${correlationId}". A message or a key has one: see ` +
        "`sagabox explain <id-or-key>`. Events are recorded while a worker watches the flow (bus.flows.watch).",
    );
  }
  return { correlationId, events, paths: buildPaths(flows, events) };
}

/** Finds unfinished paths of the given flows, longest idle first, and changes nothing. Throws OPTIONS_INVALID. */
export function findUnfinishedPaths(
  database: Database,
  schema: string,
  flows: readonly Flow[],
  options: UnfinishedOptions = {},
): Promise<readonly FlowPath[]> {
  return findUnfinished(database, schema, flows, options, { isReadOnly: true });
}
