import { SagaboxError } from "../errors/index.ts";
import type { HandlerOptions, HandlerRegistry } from "../inbox/index.ts";
import { type Duration, milliseconds, rejectUnknownKeys, text, wholeNumber } from "../options/index.ts";
import { type Database, quoteSchema, toArrayLiteral } from "../storage/index.ts";
import { buildPaths, type FlowPath, readFlowPaths, readRecordedEvents } from "./flow-path.ts";
import type { Flow } from "./flow.ts";
import { flowStatements } from "./statements.ts";

export interface UnfinishedOptions {
  /** Only paths without a new event for this long. Default "15m". */
  readonly idleFor?: Duration | number;
  /** Only paths of this flow. Default: all flows watched by this bus. */
  readonly flow?: Flow;
  /** Upper bound for the number of paths, 1 to 10,000. Default 100. */
  readonly limit?: number;
}

export interface FlowsParts {
  readonly database: Database;
  readonly schema: string;
  readonly registry: HandlerRegistry;
}

/** Watches flows and reads the recorded paths (`bus.flows`). */
export class Flows {
  readonly #parts: FlowsParts;
  readonly #watched = new Map<string, Flow>();

  constructor(parts: FlowsParts) {
    this.#parts = parts;
  }

  /**
   * Records every event of the flow from the next `bus.run()` on. It is enough that one service watches a flow.
   * Throws FLOW_INVALID when a flow of this name is watched already.
   */
  watch(flow: Flow, options: WatchOptions = {}): void {
    if (this.#watched.has(flow.name)) {
      throw new SagaboxError("FLOW_INVALID", `A flow with the name "${flow.name}" is watched already.`);
    }
    watchFlow(this.#parts.registry, this.#parts.schema, flow, options);
    this.#watched.set(flow.name, flow);
  }

  /** Reads the paths of a correlation id: one for each watched flow that has recorded events. */
  async paths(correlationId: string): Promise<readonly FlowPath[]> {
    const { database, schema } = this.#parts;
    return buildPaths(this.declarations(), await readRecordedEvents(database, schema, correlationId));
  }

  /** Finds paths that have not ended, or failed with an effect not undone. Per flow, longest idle first. */
  async unfinished(options: UnfinishedOptions = {}): Promise<readonly FlowPath[]> {
    const { database, schema } = this.#parts;
    return findUnfinished(database, schema, this.declarations(), options);
  }

  /** Lists the flows that this bus watches. */
  declarations(): readonly Flow[] {
    return [...this.#watched.values()];
  }

  /** Closes finished paths and deletes old ones. Resolves with the number of deleted events. */
  async forgetEvents(options: ForgetFlowEventsOptions): Promise<number> {
    const { database, schema } = this.#parts;
    const { signal } = options;
    for (const flow of this.#watched.values()) {
      const open = findOpenPaths(database, schema, flow, {
        idleMs: 0,
        ...(signal === undefined ? {} : { signal }),
      });
      for await (const _ of open); // findOpenPaths closes finished paths while it iterates
    }
    return forgetFlowEvents(database, schema, options);
  }
}

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

/**
 * Finds paths of the flows that have not ended, or failed with an effect not undone. Per flow, longest idle first.
 * Throws OPTIONS_INVALID. With `isReadOnly` finished paths are not marked as closed.
 */
export async function findUnfinished(
  database: Database,
  schema: string,
  flows: readonly Flow[],
  options: UnfinishedOptions,
  { isReadOnly = false } = {},
): Promise<readonly FlowPath[]> {
  rejectUnknownKeys("flows.unfinished", options, ["idleFor", "flow", "limit"]);
  const idleMs = milliseconds("flows.unfinished.idleFor", options.idleFor ?? "15m");
  const limit = wholeNumber("flows.unfinished.limit", options.limit ?? 100, { min: 1, max: 10_000 });
  const found: FlowPath[] = [];
  for (const flow of options.flow === undefined ? flows : [options.flow]) {
    for await (const path of findOpenPaths(database, schema, flow, { idleMs, isReadOnly })) {
      if (found.push(path) >= limit) return found;
    }
  }
  return found;
}

const PAGE = 200;

export interface OpenPathsOptions {
  /** Only paths without a new event for this many milliseconds. */
  readonly idleMs: number;
  /** Leaves finished paths open. Default false. */
  readonly isReadOnly?: boolean;
  readonly signal?: AbortSignal;
}

/**
 * Iterates over the unfinished paths of a flow, longest idle first. Finished paths found in the process are marked as
 * closed, so that later calls skip them, unless `isReadOnly` is set.
 */
export async function* findOpenPaths(
  database: Database,
  schema: string,
  flow: Flow,
  { idleMs, isReadOnly = false, signal }: OpenPathsOptions,
): AsyncGenerator<FlowPath, void, undefined> {
  const sql = flowStatements(quoteSchema(schema));
  let cursor: IdleRow = { seen_at: "-infinity", correlation_id: "" };
  while (signal?.aborted !== true) {
    const after = [cursor.seen_at, cursor.correlation_id];
    const { rows } = await database.run<IdleRow>(sql.quiet, [flow.name, idleMs, ...after, PAGE]);
    const ids = rows.map(({ correlation_id }) => correlation_id);
    const paths = ids.length === 0 ? [] : await readFlowPaths(database, schema, flow, ids);
    const done = paths.filter(isOver).flatMap(({ steps }) => steps.map(({ messageId }) => messageId));
    if (done.length > 0 && !isReadOnly) await database.run(sql.close, [flow.name, toArrayLiteral(done)]);
    yield* paths.filter((path) => !isOver(path));
    const last = rows.at(-1);
    if (last === undefined || rows.length < PAGE) return;
    cursor = last;
  }
}

/** A failed path is not over: it has an effect that is not undone. */
function isOver({ status }: FlowPath): boolean {
  return status === "completed" || status === "compensated";
}

interface IdleRow {
  readonly correlation_id: string;
  readonly seen_at: string;
}

const BATCH = 5_000;

export interface ForgetFlowEventsOptions {
  readonly olderThanMs: number;
  /** Upper bound for the rows that one statement deletes. Default 5,000. */
  readonly batchSize?: number;
  /** Stops the deletion between two batches. */
  readonly signal?: AbortSignal;
}

/** Deletes paths without a new event for `olderThanMs`, finished or not. Resolves with the number of deleted events. */
export async function forgetFlowEvents(
  database: Database,
  schema: string,
  { olderThanMs, batchSize = BATCH, signal }: ForgetFlowEventsOptions,
): Promise<number> {
  const { forget } = flowStatements(quoteSchema(schema));
  let total = 0;
  while (signal?.aborted !== true) {
    const { rowCount } = await database.run(forget, [olderThanMs, batchSize]);
    total += rowCount;
    if (rowCount < batchSize) break;
  }
  return total;
}
