import type pg from "pg";
import { ADMIN, type BenchDatabase } from "./server.ts";

/** Bytes of write-ahead log that `work` caused, together with everything else that ran on the server meanwhile. */
export async function measureWal(place: BenchDatabase, work: () => Promise<unknown>): Promise<number> {
  const before = await position(place);
  await work();
  return (await position(place)) - before;
}

async function position({ admin }: BenchDatabase): Promise<number> {
  const { rows } = await admin.query<{ bytes: string }>(
    "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::text as bytes",
  );
  return Number(rows[0]?.bytes);
}

/** Row versions killed so far. Sessions report theirs when they end at the latest, so they must have ended. */
export async function killedVersions(place: BenchDatabase, tables: string): Promise<number> {
  while (await hasOthers(place)) await new Promise((resolve) => setTimeout(resolve, 20));
  const { rows } = await place.admin.query<{ killed: string }>(
    `select coalesce(sum(n_tup_upd + n_tup_del), 0)::text as killed from pg_stat_user_tables
      where schemaname || '.' || relname ~ $1`,
    [tables],
  );
  return Number(rows[0]?.killed);
}

async function hasOthers({ admin }: BenchDatabase): Promise<boolean> {
  const { rows } = await admin.query<{ others: boolean }>(
    `select exists (select 1 from pg_stat_activity where datname = current_database()
                       and backend_type = 'client backend' and application_name <> $1) as others`,
    [ADMIN],
  );
  return rows[0]?.others === true;
}

/**
 * Counts the statements that go through the pool from now on, where they become bytes: with another function in the place of
 * the driver's `query` the product would go a longer way around it, and be measured on that.
 */
export function countStatements(pool: pg.Pool): { readonly count: () => number } {
  let count = 0;
  pool.on("connect", (client) => {
    const { connection } = client as unknown as { readonly connection: Wire };
    for (const name of ["query", "execute"] as const) {
      const send = connection[name].bind(connection);
      connection[name] = (...args) => {
        count += 1;
        return send(...args);
      };
    }
  });
  return { count: () => count };
}

/** A text by itself goes out by the one, a statement with parameters by the other. */
interface Wire {
  query(...args: unknown[]): unknown;
  execute(...args: unknown[]): unknown;
}
