import { quoteSchema, toArrayLiteral, type Database } from "../storage/index.ts";
import type { Flow } from "./flow.ts";
import { readFlowPaths, type FlowPath } from "./flow-path.ts";
import { flowStatements } from "./statements.ts";

const PAGE = 200;

export interface OpenPathsOptions {
  /** Only paths without a new event for this many milliseconds. */
  readonly idleMs: number;
  readonly signal?: AbortSignal;
}

/**
 * Iterates over the unfinished paths of a flow, longest idle first. Finished paths found in the process are marked as
 * closed, so that later calls skip them.
 */
export async function* findOpenPaths(
  database: Database,
  schema: string,
  flow: Flow,
  { idleMs, signal }: OpenPathsOptions,
): AsyncGenerator<FlowPath, void, undefined> {
  const sql = flowStatements(quoteSchema(schema));
  let cursor: IdleRow = { seen_at: "-infinity", correlation_id: "" };
  while (signal?.aborted !== true) {
    const after = [cursor.seen_at, cursor.correlation_id];
    const { rows } = await database.run<IdleRow>(sql.quiet, [flow.name, idleMs, ...after, PAGE]);
    const ids = rows.map(({ correlation_id }) => correlation_id);
    const paths = ids.length === 0 ? [] : await readFlowPaths(database, schema, flow, ids);
    const done = paths.filter(isOver).flatMap(({ steps }) => steps.map(({ messageId }) => messageId));
    if (done.length > 0) await database.run(sql.close, [flow.name, toArrayLiteral(done)]);
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
