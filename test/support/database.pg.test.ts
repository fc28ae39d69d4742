import { expect, test } from "vitest";
import pg from "pg";
import { createDatabase, databaseForFile, temporaryDatabase } from "./database.ts";

const shared = databaseForFile();

test("a database for the file keeps what an earlier statement left", async () => {
  const { pool } = await shared;
  await pool.query("create table left_behind as select 1 as id");
  expect((await pool.query("select id from left_behind")).rows).toEqual([{ id: 1 }]);
});

test("each temporary database is empty and its own", async () => {
  const [one, other] = [await temporaryDatabase(), await temporaryDatabase()];
  await one.pool.query("create table only_here (id int)");
  const { rows } = await other.pool.query("select to_regclass('only_here') as found");
  expect(rows).toEqual([{ found: null }]);
});

test("a dropped database is gone, replication slots included", async () => {
  const database = await createDatabase();
  await database.pool.query("select pg_create_logical_replication_slot($1, 'pgoutput')", [database.name]);
  await database.drop();
  await database.drop();
  const witness = await temporaryDatabase();
  const { rows } = await witness.pool.query(
    `select (select count(*)::int from pg_database where datname = $1) as databases,
            (select count(*)::int from pg_replication_slots where slot_name = $1) as slots`,
    [database.name],
  );
  expect(rows).toEqual([{ databases: 0, slots: 0 }]);
});

test("a connection left open is reported as a leak", async () => {
  const database = await createDatabase();
  const forgotten = new pg.Client({ connectionString: database.url, application_name: "forgotten" });
  forgotten.on("error", () => undefined);
  await forgotten.connect();
  await expect(database.drop()).rejects.toThrow("forgotten");
});

test("a client not given back to the pool is reported as a leak", async () => {
  const database = await createDatabase();
  const client = await database.pool.connect();
  client.on("error", () => undefined);
  await expect(database.drop()).rejects.toThrow("1 connection(s) were not given back");
  client.release(true);
  await database.pool.end();
});
