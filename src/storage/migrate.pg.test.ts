import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { temporaryDatabase } from "../../test/support/database.ts";
import { pgDatabase } from "./drivers/pg.ts";
import { assertMigrated, migrateUp, migrationSql, readMigrationStatus, type Migration } from "./migrate.ts";
import { migrations as shipped } from "./migrations.generated.ts";

async function setup() {
  const temporary = await temporaryDatabase({ max: 20 });
  return { ...temporary, database: pgDatabase(temporary.pool) };
}

function migration(version: number, sql: string, more: Partial<Migration> = {}): Migration {
  return { version, name: `step_${version}`, breaking: false, checksum: `sum-${version}`, sql, ...more };
}

const one = migration(1, "create table {schema}.one (id int)");
const two = migration(2, "create table {schema}.two (id int)");

async function tables(pool: pg.Pool, schema = "sagabox"): Promise<string[]> {
  const { rows } = await pool.query<{ name: string }>(
    "select relname as name from pg_class where relnamespace = to_regnamespace($1)::oid and relkind in ('r', 'p') order by 1",
    [schema],
  );
  return rows.map((row) => row.name);
}

test("G12: ten that start at once all succeed, and each migration is applied by one of them", async () => {
  const { database } = await setup();
  const runs = await Promise.all(Array.from({ length: 10 }, () => migrateUp(database, "sagabox")));
  expect(runs.flat()).toHaveLength(shipped.length);
  const status = await readMigrationStatus(database, "sagabox");
  expect(status.applied.map((row) => row.version)).toEqual(shipped.map((row) => row.version));
  expect(status.pending).toEqual([]);
});

test("G12: an empty database has everything pending, and using it is refused with the way out", async () => {
  const { database } = await setup();
  expect((await readMigrationStatus(database, "sagabox")).pending).toEqual(shipped);
  await expect(assertMigrated(database, "sagabox")).rejects.toMatchObject({
    code: "STORAGE_NOT_MIGRATED",
    message: expect.stringContaining("sagabox migrate up"),
  });
  await migrateUp(database, "sagabox");
  await expect(assertMigrated(database, "sagabox")).resolves.toBeUndefined();
});

test("G12: a schema changed by a newer breaking migration is refused and left as it is", async () => {
  const { database, pool } = await setup();
  await migrateUp(database, "sagabox", [one, migration(9, "select 1", { breaking: true })]);
  for (const attempt of [migrateUp, readMigrationStatus]) {
    await expect(attempt(database, "sagabox", [one, two])).rejects.toMatchObject({ code: "STORAGE_TOO_NEW" });
  }
  expect(await tables(pool)).toEqual(["one", "schema_migration"]);
});

test("a newer migration that breaks nothing is no hindrance", async () => {
  const { database } = await setup();
  await migrateUp(database, "sagabox", [one, migration(9, "select 1")]);
  expect(await migrateUp(database, "sagabox", [one, two])).toEqual([two]);
});

test("G12: a schema made by another list of migrations is refused, whether that list is longer or shorter", async () => {
  const { database, pool } = await setup();
  const later = migration(3, "create table {schema}.three (id int)", { breaking: true });
  await migrateUp(database, "sagabox", [one, two, later]);
  const otherList = [{ ...one, name: "renamed", checksum: "another" }, two];
  for (const attempt of [migrateUp, readMigrationStatus]) {
    await expect(attempt(database, "sagabox", otherList)).rejects.toMatchObject({
      code: "STORAGE_SCHEMA_MISMATCH",
      message: expect.stringMatching(/migration 1 \(step_1\).*drop the schema.*SAGABOX_SCHEMA/),
    });
  }
  expect(await tables(pool)).toEqual(["one", "schema_migration", "three", "two"]);
});

test("G12: a migration that a user's own view stands in the way of names the view", async () => {
  const { database, pool } = await setup();
  await migrateUp(database, "sagabox", [one]);
  await pool.query("create view public.mine as select id from sagabox.one");
  const widen = migration(2, "alter table {schema}.one alter id type bigint");
  await expect(migrateUp(database, "sagabox", [one, widen])).rejects.toMatchObject({
    code: "STORAGE_MIGRATION_FAILED",
    message: expect.stringContaining("view mine"),
  });
});

test("G12: a migration that fails half-way leaves nothing of itself, and those before it stay", async () => {
  const { database, pool } = await setup();
  const broken = migration(2, "create table {schema}.half (id int); select 1 / 0");
  await expect(migrateUp(database, "sagabox", [one, broken])).rejects.toMatchObject({
    code: "STORAGE_MIGRATION_FAILED",
    message: expect.stringContaining("division by zero"),
  });
  expect(await tables(pool)).toEqual(["one", "schema_migration"]);
  expect(await migrateUp(database, "sagabox", [one, two])).toEqual([two]);
});

test("G12: a process cut off in the middle of a migration leaves nothing of it, and the next one finishes the job", async () => {
  const { database, pool } = await setup();
  const slow = migration(2, "create table {schema}.half (id int); select pg_sleep(60)");
  const running = migrateUp(database, "sagabox", [one, slow]).catch((error: unknown) => error);
  const cut =
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and query like '%pg_sleep(60)' and pid <> pg_backend_pid()";
  while ((await pool.query(cut)).rowCount === 0);
  expect(await running).toBeInstanceOf(Error);
  expect(await tables(pool)).toEqual(["one", "schema_migration"]);
  expect(await migrateUp(database, "sagabox", [one, two])).toEqual([two]);
});

test("G12: the printed SQL applies by itself, under any schema name, and counts as applied", async () => {
  const { database, pool } = await setup();
  await pool.query(migrationSql("other_name"));
  const status = await readMigrationStatus(database, "other_name");
  expect(status.pending).toEqual([]);
  expect(await migrateUp(database, "other_name")).toEqual([]);
});

test.each(["select", "user", "_", "a".repeat(63)])(
  "two schemas live side by side, one called %s",
  async (name) => {
    const { database, pool } = await setup();
    await migrateUp(database, "sagabox");
    await migrateUp(database, name);
    expect(await tables(pool, `"${name}"`)).toEqual(await tables(pool));
    expect((await readMigrationStatus(database, name)).pending).toEqual([]);
  },
);

async function asRole(url: string, admin: pg.Pool, rights: (role: string) => string) {
  const role = `r_${new URL(url).pathname.slice(1)}`;
  await admin.query(`create role ${role} login password 'x'; ${rights(role)}`);
  const address = new URL(url);
  [address.username, address.password] = [role, "x"];
  const pool = new pg.Pool({ connectionString: address.href, max: 2 });
  onTestFinished(async () => {
    await pool.end();
    await admin.query(`drop owned by ${role}; drop role ${role}`);
  });
  return pgDatabase(pool);
}

test("a role that may not create anything gets a typed error that says what to grant", async () => {
  const { url, pool } = await setup();
  const database = await asRole(url, pool, () => "");
  await expect(migrateUp(database, "sagabox")).rejects.toMatchObject({ code: "STORAGE_PERMISSION_DENIED" });
});

test("a role without rights on the schema gets a typed error from status too", async () => {
  const { url, pool, database } = await setup();
  await migrateUp(database, "sagabox");
  const limited = await asRole(url, pool, () => "");
  await expect(readMigrationStatus(limited, "sagabox")).rejects.toMatchObject({
    code: "STORAGE_PERMISSION_DENIED",
  });
});

test("a role that may only read and write finds that all is done", async () => {
  const { url, pool, database } = await setup();
  await migrateUp(database, "sagabox");
  const limited = await asRole(
    url,
    pool,
    (role) =>
      `grant usage on schema sagabox to ${role}; grant select on all tables in schema sagabox to ${role}`,
  );
  expect(await migrateUp(limited, "sagabox")).toEqual([]);
});
