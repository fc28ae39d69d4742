import { expect, onTestFinished, test } from "vitest";
import { temporaryDatabase, lockRows } from "../../../test/support/database.ts";
import { limitStatements } from "../deadlines.ts";
import { defineStatement } from "../statement.ts";
import { pgDatabase } from "./pg.ts";

const DEADLINE_MS = 300;
const update = defineStatement("test.update", "update thing set n = n + 1");

/** A row that a foreign session has locked, and how many sessions of ours wait for it. */
async function setup() {
  const { pool, url } = await temporaryDatabase();
  await pool.query("create table thing as select 1 as n");
  const { release } = await lockRows(pool, "select from thing for update");
  const database = pgDatabase(url, { maxConnections: 5 });
  onTestFinished(() => database.close());
  const waiting = async (): Promise<number> =>
    (
      await pool.query(
        "select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
      )
    ).rowCount ?? 0;
  return { pool, database, release, waiting };
}

test("a statement that waits for a lock beyond its deadline leaves no session behind", async () => {
  const { pool, database, release, waiting } = await setup();
  const prompt = limitStatements(database, DEADLINE_MS);
  for (let n = 0; n < 3; n++)
    await expect(prompt.run(update)).rejects.toMatchObject({ code: "STORAGE_UNAVAILABLE" });
  await expect.poll(waiting, { timeout: 10_000 }).toBe(0);
  await release();
  expect((await pool.query("select n from thing")).rows).toEqual([{ n: 1 }]);
});

test("a transaction that is destroyed while its SQL waits for a lock leaves no session behind", async () => {
  const { database, waiting } = await setup();
  const tx = await database.begin();
  const asked = expect(tx.query("update thing set n = n + 1")).rejects.toThrow();
  await expect.poll(waiting, { timeout: 10_000 }).toBe(1);
  tx.destroy();
  await asked;
  await expect.poll(waiting, { timeout: 10_000 }).toBe(0);
});

test("a session that is given back while its statement waits for a lock leaves nothing behind", async () => {
  const { database, waiting } = await setup();
  const session = await database.session("test");
  const asked = expect(session.run(update)).rejects.toThrow();
  await expect.poll(waiting, { timeout: 10_000 }).toBe(1);
  session.release();
  await asked;
  await expect.poll(waiting, { timeout: 10_000 }).toBe(0);
});
