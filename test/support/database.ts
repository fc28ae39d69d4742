import { randomBytes } from "node:crypto";
import pg from "pg";
import { afterAll, inject, onTestFinished, expect } from "vitest";
import { pgDatabase } from "../../src/storage/index.ts";

export interface TemporaryDatabase {
  readonly name: string;
  readonly url: string;
  readonly pool: pg.Pool;
  /** Ends the pool and removes the database with everything in it. Calling it twice is harmless. */
  drop(): Promise<void>;
}

export interface TemporaryDatabaseOptions {
  /** How many connections the pool may hold. Default 10. */
  readonly max?: number;
  /** A database to copy from, which must have no connections. Default: an empty one. */
  readonly template?: string;
  /** Copied from one in which sagabox's tables exist already. Default false. */
  readonly migrated?: boolean;
  /** Another encoding than UTF8, for an empty database. */
  readonly encoding?: string;
  /** What is still connected at the end counts as a leak and fails the test. Default true. */
  readonly leakGuard?: boolean;
}

/** A database of its own for the running test, dropped when the test is over. */
export async function temporaryDatabase(options: TemporaryDatabaseOptions = {}): Promise<TemporaryDatabase> {
  const database = await createDatabase(options);
  onTestFinished(() => database.drop());
  return database;
}

/** A database for all tests of a file (call it in `beforeAll` or at the top), dropped after the last. */
export function databaseForFile(options: TemporaryDatabaseOptions = {}): Promise<TemporaryDatabase> {
  const created = createDatabase(options);
  afterAll(async () => (await created).drop());
  return created;
}

// The only way there is in PostgreSQL 14, which does not know the word.
const QUICK_COPY = process.env["TEST_POSTGRES"] === "14" ? "" : " strategy file_copy";

/** A database the caller drops. */
export async function createDatabase(options: TemporaryDatabaseOptions = {}): Promise<TemporaryDatabase> {
  const name = `t_${randomBytes(8).toString("hex")}`;
  await asAdmin(
    `create database ${name} template ${templateSql(options)}${encodingSql(options)}${QUICK_COPY}`,
  );
  const url = new URL(inject("postgresUrl"));
  url.pathname = `/${name}`;
  const pool = new pg.Pool({ connectionString: url.href, max: options.max ?? 10 });
  // A connection cut by a crash test reports here; without a listener it would end the process.
  pool.on("error", () => undefined);
  let dropped: Promise<void> | undefined;
  const drop = (): Promise<void> => (dropped ??= dropDatabase(name, pool, options.leakGuard ?? true));
  return { name, url: url.href, pool, drop };
}

/** Ends every session of the database, as a restart of the server would. */
export async function cutConnections({ name }: Pick<TemporaryDatabase, "name">): Promise<void> {
  await asAdmin(
    `select pg_terminate_backend(pid)::text as open from pg_stat_activity where datname = '${name}'`,
  );
}

// Only the locale C goes with every encoding.
function encodingSql({ encoding }: TemporaryDatabaseOptions): string {
  return encoding === undefined ? "" : ` encoding '${encoding}' lc_collate 'C' lc_ctype 'C'`;
}

function templateSql({ template, migrated }: TemporaryDatabaseOptions): string {
  return template ?? (migrated === true ? inject("migratedTemplate") : "template0");
}

async function dropDatabase(name: string, pool: pg.Pool, leakGuard: boolean): Promise<void> {
  const borrowed = await countBorrowed(pool);
  if (borrowed === 0) await pool.end();
  const left = leakGuard ? await connectionsLeft(name) : [];
  await asAdmin(
    `select pg_drop_replication_slot(slot_name) from pg_replication_slots
      where database = '${name}' and not active`,
  );
  await asAdmin(`drop database if exists ${name} with (force)`);
  if (leakGuard && borrowed > 0)
    throw new Error(`${borrowed} connection(s) were not given back to the pool: ${left.join("; ")}`);
  if (left.length > 0) throw new Error(`The test left connections open: ${left.join("; ")}`);
}

// A statement that was running when the test ended gives its connection back in a moment; a leak never does.
async function countBorrowed(pool: pg.Pool): Promise<number> {
  for (let look = 1; ; look += 1) {
    const borrowed = pool.totalCount - pool.idleCount;
    if (borrowed === 0 || look === 50) return borrowed;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

// The server notices a closed socket a moment after we closed it, so the guard looks more than once.
async function connectionsLeft(name: string): Promise<string[]> {
  for (let look = 1; ; look += 1) {
    const { rows } = await asAdmin(
      `select coalesce(nullif(application_name, ''), 'unnamed') || ' ' || coalesce(state, '') || ' ' || left(query, 200) as open
         from pg_stat_activity where datname = '${name}' and backend_type in ('client backend', 'walsender')`,
    );
    if (rows.length === 0 || look === 50) return rows.map((row) => row.open);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

async function asAdmin(sql: string): Promise<{ rows: { open: string }[] }> {
  const client = new pg.Client({ connectionString: inject("postgresUrl") });
  await client.connect();
  try {
    return await client.query<{ open: string }>(sql);
  } finally {
    await client.end();
  }
}

export const FOREIGN_SESSION = "nightly report";

/** Names the foreign session, its transaction and nothing else. */
export const BLOCKED_BY_FOREIGN = new RegExp(
  `^pid \\d+ \\(${FOREIGN_SESSION}\\), transaction open for \\d+\\.\\d s$`,
);

/** Runs the statement in a foreign session, in a transaction that stays open until it is released. */
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

/** Ends statements that the server still runs after the client gave up; a session that remains counts as a leak. */
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

/** A database with a table of notes, behind a pool of one connection. */
export async function notebook(options: pg.PoolConfig = {}) {
  const temporary = await temporaryDatabase();
  await temporary.pool.query("create table note (id int generated always as identity, text text unique)");
  const pool = new pg.Pool({ connectionString: temporary.url, max: 1, ...options });
  pool.on("error", () => undefined);
  onTestFinished(() => pool.end());
  const notes = async () => {
    const { rows } = await temporary.pool.query<{ text: string }>("select text from note order by id");
    return rows.map((row) => row.text);
  };
  return { ...temporary, admin: temporary.pool, pool, database: pgDatabase(pool), notes };
}
