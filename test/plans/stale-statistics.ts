import type pg from "pg";
import { ensurePartitions } from "../../src/outbox/upkeep/history.ts";
import { pgDatabase } from "../../src/storage/index.ts";
import { KeptPlans } from "./explain.ts";
import { fillTables, freezeStatistics, prepareOwners } from "./fill.ts";
import { messagePath } from "./message-path.ts";

/** A statement of the path names at most ten rows of a table, and looks at some tables more than once. */
const MAX_ROWS = 100;
/** Each lookup by id descends an index in every partition of the archive. */
const MAX_BLOCKS = 500;

/**
 * Plans all statements of the message path while the tables are empty and were analysed empty, fills the tables up to each
 * size, and returns which statements read more than the rows they name. Also tries plans made anew for each execution.
 */
export async function findGreedyStatements(
  pool: pg.Pool,
  sizes: readonly number[],
): Promise<readonly string[]> {
  await ensurePartitions(pgDatabase(pool), "sagabox");
  await prepareOwners(pool);
  await freezeStatistics(pool);
  const path = messagePath();
  const modes = ["force_generic_plan", "force_custom_plan"] as const;
  const plans = modes.map((mode) => ({ mode, kept: new KeptPlans(pool, mode) }));
  const greedy: string[] = [];
  try {
    for (const { kept } of plans) await kept.prepare(path);
    let filled = 0;
    for (const size of sizes) {
      await fillTables(pool, filled + 1, size);
      filled = size;
      for (const { mode, kept } of plans) {
        for (const [index, { statement }] of path.entries()) {
          await kept.work(path, index); // fills the caches of the session, which would count as blocks
          const { rows, blocks, scans } = await kept.work(path, index);
          if (rows <= MAX_ROWS && blocks <= MAX_BLOCKS) continue;
          greedy.push(
            `${statement.name} (${mode}, ${size} rows): ${rows} rows, ${blocks} blocks\n  ${scans.join("\n  ")}`,
          );
        }
      }
    }
    return greedy;
  } finally {
    for (const { kept } of plans) kept.release();
  }
}
