import type pg from "pg";
import { onTestFinished } from "vitest";

export const FOREIGN_SESSION = "nightly report";

/** Names the foreign session, its transaction and nothing else. */
export const BLOCKED_BY_FOREIGN = new RegExp(
  `^pid \\d+ \\(${FOREIGN_SESSION}\\), transaction open for \\d+\\.\\d s$`,
);

/** A session of somebody else runs this in a transaction that stays open until it is released. */
export async function lockRows(pool: pg.Pool, sql: string, params: unknown[] = []) {
  const client = await pool.connect();
  await client.query(`set application_name = '${FOREIGN_SESSION}'`);
  await client.query("begin");
  const { rowCount } = await client.query(sql, params);
  let isOver = false;
  const release = async (): Promise<void> => {
    if (isOver) return;
    isOver = true;
    await client.query("rollback");
    client.release(true);
  };
  onTestFinished(release);
  return { rowCount, release };
}
