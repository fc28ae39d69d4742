import type pg from "pg";
import { expect } from "vitest";

/** The server goes on with what its client has given up; whoever is still there at the end counts as a leak. */
export async function endSleepers(admin: pg.Pool): Promise<void> {
  const sleepers = `select pg_terminate_backend(pid) from pg_stat_activity
                     where datname = current_database() and pid <> pg_backend_pid() and query like 'select pg_sleep%'`;
  await expect.poll(async () => (await admin.query(sleepers)).rowCount, { timeout: 10_000 }).toBe(0);
}

/** Resolves when the server has begun to sleep: before that it could still do so after its client has left. */
export async function asleep(admin: pg.Pool): Promise<void> {
  const sleepers = `select pid from pg_stat_activity
                     where datname = current_database() and state = 'active' and query like 'select pg_sleep%'`;
  await expect.poll(async () => (await admin.query(sleepers)).rowCount, { timeout: 10_000 }).toBe(1);
}
