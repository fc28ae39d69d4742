import type pg from "pg";

/** What may be left in the database after every worker said good-bye. */
export const NOTHING = {
  outbox: 0,
  queue: 0,
  lanes: 0,
  members: 0,
  dead: 0,
  transactions: 0,
  advisory: 0,
} as const;

async function look(pool: pg.Pool): Promise<Record<string, number>> {
  const { rows } = await pool.query<Record<string, number>>(
    `select (select count(*) from sagabox.outbox)::integer as outbox,
            (select count(*) from sagabox.queue)::integer as queue,
            (select count(*) from sagabox.relay_lane where owner is not null)::integer as lanes,
            (select count(*) from sagabox.member where lease_until > clock_timestamp())::integer as members,
            (select count(*) from sagabox.dead_letter)::integer as dead,
            (select count(*) from pg_stat_activity where datname = current_database() and xact_start is not null
                and pid <> pg_backend_pid() and backend_type = 'client backend')::integer as transactions,
            (select count(*) from pg_locks where locktype = 'advisory' and database =
               (select oid from pg_database where datname = current_database()))::integer as advisory`,
  );
  return rows[0] ?? {};
}

// The server notices that a killed process is gone a moment after its socket closed, and ends its transaction then.
const PATIENCE_MS = 10_000;

/** What is left when nothing should be. Looked at again for a while: only what stays is left. */
export async function whatIsLeft(pool: pg.Pool): Promise<Readonly<Record<string, number>>> {
  const endMs = performance.now() + PATIENCE_MS;
  for (;;) {
    const left = await look(pool);
    if (Object.values(left).every((count) => count === 0) || performance.now() > endMs) return left;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
