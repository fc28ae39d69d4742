import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { assertWritable, migrateUp } from "../migrate.ts";
import { SessionHolder } from "../session-holder.ts";
import { defineStatement } from "../statement.ts";
import { toQueryable } from "./caller-transaction.ts";
import { pgDatabase } from "./pg.ts";

const insert = defineStatement("test.insert", "insert into noted (n) values (1)");
const count = defineStatement("test.count", "select count(*)::integer as n from noted");
const lockAll = defineStatement("test.lock", "select n from noted for update");
const refused = { code: "STORAGE_READ_ONLY", cause: { code: "25006" } };

/** A database that can be made read-only for the connections that are opened from then on. */
async function setup() {
  const { name, pool: outside, url } = await temporaryDatabase();
  await outside.query("create table noted (n integer not null)");
  const pool = new pg.Pool({ connectionString: url, max: 4 });
  onTestFinished(() => pool.end());
  return {
    pool,
    database: pgDatabase(pool),
    refuseWrites: () => outside.query(`alter database ${name} set default_transaction_read_only = on`),
    acceptWrites: () => outside.query(`alter database ${name} reset default_transaction_read_only`),
  };
}

test("a statement that a read-only connection refused is explained, and the connection is replaced", async () => {
  const { database, pool, refuseWrites, acceptWrites } = await setup();
  await refuseWrites();
  await expect(database.run(insert)).rejects.toMatchObject(refused);
  expect(pool.totalCount).toBe(0);
  await acceptWrites();
  await database.run(insert);
});

test("a session that was opened in a read-only phase does not outlive it", async () => {
  const { database, refuseWrites, acceptWrites } = await setup();
  const holder = new SessionHolder(database, "test");
  onTestFinished(() => holder.close());
  await refuseWrites();
  await expect((await holder.get()).run(insert)).rejects.toMatchObject(refused);
  await acceptWrites();
  await (await holder.get()).run(insert);
});

test("nor does the connection of a transaction, be its first write ours, the caller's or sent with the COMMIT", async () => {
  const { database, pool, refuseWrites, acceptWrites } = await setup();
  await refuseWrites();
  const ours = await database.begin();
  await expect(ours.run(insert)).rejects.toMatchObject(refused);
  await ours.rollback();
  const theirs = await database.begin();
  await expect(theirs.query("insert into noted (n) values (2)")).rejects.toMatchObject({ code: "25006" });
  await theirs.rollback();
  const last = await database.begin();
  await last.run(count);
  await expect(last.commit([{ statement: insert, params: [] }])).rejects.toMatchObject(refused);
  expect(pool.totalCount).toBe(0);
  await acceptWrites();
  const tx = await database.begin();
  await tx.run(insert);
  await tx.commit();
});

test("a transaction that its own SQL made read-only is the caller's failure, and its connection is kept", async () => {
  const { database, pool } = await setup();
  const tx = await database.begin();
  await tx.run(insert);
  await tx.query("set transaction read only");
  await expect(tx.run(insert)).rejects.toMatchObject({ code: "25006" });
  await tx.rollback();
  expect(pool.totalCount).toBe(1);
  expect((await database.run(count)).rows).toEqual([{ n: 0 }]);
});

test("a row lock proves as well that the transaction could write before its own SQL made it read-only", async () => {
  const { database, pool } = await setup();
  await database.run(insert);
  const tx = await database.begin();
  await tx.run(lockAll);
  await tx.query("set transaction read only");
  await expect(tx.run(insert)).rejects.toMatchObject({ code: "25006" });
  await tx.rollback();
  expect(pool.totalCount).toBe(1);
});

test("a caller's own transaction that is read-only is explained, and left to the caller", async () => {
  const { pool } = await setup();
  const client = await pool.connect();
  await client.query("begin read only");
  await expect(toQueryable(client).run(insert)).rejects.toMatchObject(refused);
  await client.query("rollback");
  client.release();
});

test("neither migrating nor working is begun on a read-only database, and both say why", async () => {
  const { database, refuseWrites } = await setup();
  await refuseWrites();
  await expect(migrateUp(database, "sagabox")).rejects.toMatchObject(refused);
  await expect(assertWritable(database)).rejects.toMatchObject({
    code: "STORAGE_READ_ONLY",
    message: expect.stringMatching(
      /standby.*default_transaction_read_only.*Connect to the primary/s,
    ) as unknown,
  });
});
