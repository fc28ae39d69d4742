import { setTimeout as sleep } from "node:timers/promises";
import type { Pool } from "pg";

// #region ended
/** Waits until a saga has ended, or needs a person. */
export async function ended(pool: Pool, sagaId: string): Promise<string> {
  for (;;) {
    const { rows } = await pool.query<{ status: string }>(
      "select status from sagabox.saga_instance where id = $1",
      [sagaId],
    );
    const status = rows[0]?.status ?? "unknown";
    if (["completed", "compensated", "failed"].includes(status)) return status;
    await sleep(20);
  }
}
// #endregion ended

// #region history
/** What became of its steps, in order. */
export async function history(pool: Pool, sagaId: string): Promise<string[]> {
  const { rows } = await pool.query<{ line: string }>(
    `select step || ' ' || new_status || coalesce(': ' || note, '') as line
       from sagabox.saga_audit_log
      where saga_id = $1 and step is not null and new_status in ('completed', 'failed', 'compensated')
      order by id`,
    [sagaId],
  );
  return rows.map(({ line }) => line);
}
// #endregion history
