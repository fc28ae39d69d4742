import { quoteSchema, toArrayLiteral, type Database } from "../storage/index.ts";
import { type Flow, groupBy, type RecordedEvent } from "./flow.ts";
import { judgePath, type Judgement } from "./judge-path.ts";
import { flowStatements } from "./statements.ts";

/** The recorded events of one correlation id and one flow, with their status. Times are ISO 8601 in UTC. */
export interface FlowPath extends Judgement {
  readonly flow: string;
  readonly correlationId: string;
  readonly beganAt: string;
  readonly lastAt: string;
  readonly durationMs: number;
}

/** Upper bound for the events read for one correlation id. */
const MAX_EVENTS = 10_000;

/** Reads the events recorded for a correlation id, of all flows, up to 10,000. */
export async function readRecordedEvents(
  database: Database,
  schema: string,
  correlationId: string,
): Promise<readonly RecordedEvent[]> {
  const { ofCorrelation } = flowStatements(quoteSchema(schema));
  const { rows } = await database.run<Row>(ofCorrelation, [correlationId, MAX_EVENTS]);
  return rows.map(readRow);
}

/** Reads the path of a correlation id through a flow. Returns undefined when no event was recorded. */
export async function readFlowPath(
  database: Database,
  schema: string,
  flow: Flow,
  correlationId: string,
): Promise<FlowPath | undefined> {
  const events = await readRecordedEvents(database, schema, correlationId);
  return buildPath(
    flow,
    events.filter((event) => event.flow === flow.name),
  );
}

/** Reads the paths of several correlation ids through one flow with one statement. */
export async function readFlowPaths(
  database: Database,
  schema: string,
  flow: Flow,
  correlationIds: readonly string[],
): Promise<readonly FlowPath[]> {
  const { ofCorrelations } = flowStatements(quoteSchema(schema));
  const { rows } = await database.run<Row>(ofCorrelations, [flow.name, toArrayLiteral(correlationIds)]);
  const events = groupBy(rows.map(readRow), ({ correlationId }) => correlationId);
  return correlationIds.flatMap((id) => buildPath(flow, events.get(id) ?? []) ?? []);
}

/** Builds the paths of the recorded events of one correlation id: one for each of the flows that has events. */
export function buildPaths(flows: readonly Flow[], events: readonly RecordedEvent[]): readonly FlowPath[] {
  const groups = groupBy(events, ({ flow }) => flow);
  return flows.flatMap((flow) => buildPath(flow, groups.get(flow.name) ?? []) ?? []);
}

/** Builds the path of events that share a correlation id. Returns undefined when `events` is empty. */
export function buildPath(flow: Flow, events: readonly RecordedEvent[]): FlowPath | undefined {
  const judgement = judgePath(flow, events);
  const [first, last] = [judgement.steps[0], judgement.steps.at(-1)];
  if (first === undefined || last === undefined) return undefined;
  return {
    flow: flow.name,
    correlationId: first.correlationId,
    beganAt: first.happenedAt,
    lastAt: last.happenedAt,
    durationMs: last.sinceBeginMs,
    ...judgement,
  };
}

interface Row {
  readonly flow: string;
  readonly message_id: string;
  readonly correlation_id: string;
  readonly type: string;
  readonly causation_id: string | null;
  readonly source: string;
  readonly key: string | null;
  readonly happened_at: string;
  readonly recorded_at: string;
}

function readRow(row: Row): RecordedEvent {
  return {
    flow: row.flow,
    messageId: row.message_id,
    correlationId: row.correlation_id,
    type: row.type,
    causationId: row.causation_id,
    source: row.source,
    key: row.key,
    happenedAt: row.happened_at,
    recordedAt: row.recorded_at,
  };
}
