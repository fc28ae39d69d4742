import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { asleep, endSleepers, notebook } from "../../../test/support/database.ts";
import { Wire } from "../../../test/support/wire.ts";
import { defineStatement } from "../statement.ts";
import { pgDatabase } from "./pg.ts";

const insert = defineStatement("test.insert", "insert into note (text) values ($1::text) returning id");

test("what was written is there after the commit, and the connection is free again", async () => {
  const { database, pool, notes } = await notebook();
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  await tx.query("insert into note (text) values ($1)", ["b"]);
  expect(await tx.commit()).toEqual([]);
  expect(await notes()).toEqual(["a", "b"]);
  expect([pool.totalCount, pool.idleCount, tx.open]).toEqual([1, 1, false]);
});

test("statements sent together with the COMMIT are part of it and answer with their rows", async () => {
  const { database, notes } = await notebook();
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  const answers = await tx.commit([
    { statement: insert, params: ["b"] },
    { statement: insert, params: ["c"] },
  ]);
  expect(answers.map((answer) => answer.rows)).toEqual([[{ id: 2 }], [{ id: 3 }]]);
  expect(await notes()).toEqual(["a", "b", "c"]);
});

test("an afterword is said when the transaction is over, and then the connection is free again", async () => {
  const { database, pool, notes } = await notebook();
  const tx = await database.begin({ isolation: "serializable" });
  await tx.run(insert, ["a"]);
  const own = defineStatement(
    "test.own",
    "insert into note (text) values (current_setting('transaction_isolation'))",
  );
  let answered: Promise<unknown> | undefined;
  const onSent = (answer: Promise<unknown>): void => void (answered = answer);
  expect(await tx.commit([], { statement: own, params: [], onSent })).toEqual([]);
  await answered;
  expect(await notes()).toEqual(["a", "read committed"]);
  await expect.poll(() => pool.idleCount).toBe(1);
});

test("an afterword that fails takes nothing back", async () => {
  const { database, pool, notes } = await notebook();
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  const broken = defineStatement("test.broken", "select 1 / 0");
  let answered: Promise<unknown> | undefined;
  await tx.commit([], { statement: broken, params: [], onSent: (answer) => void (answered = answer) });
  await answered;
  expect(await notes()).toEqual(["a"]);
  await expect.poll(() => pool.totalCount - pool.idleCount).toBe(0);
});

test("a transaction of nothing but its last statements commits too", async () => {
  const { database, notes } = await notebook();
  const tx = await database.begin();
  await tx.commit([{ statement: insert, params: ["a"] }]);
  expect(await notes()).toEqual(["a"]);
});

test("a transaction in which nothing is asked never bothers the server", async () => {
  const { database, pool } = await notebook();
  const asked: unknown[] = [];
  pool.once("connect", (client) => {
    const send = client.query.bind(client) as (...args: unknown[]) => unknown;
    Object.assign(client, { query: (...args: unknown[]) => (asked.push(args[0]), send(...args)) });
  });
  const tx = await database.begin();
  await tx.rollback();
  expect(asked).toEqual([]);
  expect([pool.totalCount, pool.idleCount, tx.open]).toEqual([1, 1, false]);
});

test("a last statement that fails takes everything back and tells why", async () => {
  const { database, pool, notes } = await notebook();
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  const last = { statement: insert, params: ["a"] };
  await expect(tx.commit([last, { statement: insert, params: ["b"] }])).rejects.toMatchObject({
    code: "23505",
  });
  expect(await notes()).toEqual([]);
  expect(pool.idleCount).toBe(1);
});

test("a parameter that cannot be written is told before anything is sent, and spoils no prepared statement", async () => {
  const { database, pool, notes } = await notebook();
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  const unwritable = { amount: 1n } as never;
  await expect(tx.run(insert, [unwritable])).rejects.toThrow("BigInt");
  const last = { statement: insert, params: [unwritable] };
  await expect(tx.commit([{ statement: insert, params: ["b"] }, last])).rejects.toThrow("BigInt");
  await tx.rollback();
  expect([await notes(), pool.totalCount, pool.idleCount]).toEqual([[], 1, 1]);
  await database.run(insert, ["c"]);
  expect([await notes(), pool.totalCount]).toEqual([["c"], 1]);
});

test.each([
  ["null", null, ["a"]],
  ["a callback", (_error: unknown, found: unknown) => found, []],
])("what is no list of parameters, %s, is answered by the promise", async (_name, params, left) => {
  const { database, notes } = await notebook();
  const tx = await database.begin();
  const asked = tx.query("insert into note (text) values ('a')", params as never);
  await asked.then(
    () => tx.commit(),
    () => tx.rollback(),
  );
  expect(await notes()).toEqual(left);
});

test("a COMMIT that the server answers with ROLLBACK is an error, not a success", async () => {
  const { database, notes } = await notebook();
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  await tx.query("select 1 / 0").catch(() => "swallowed");
  await expect(tx.commit()).rejects.toMatchObject({ code: "TRANSACTION_ABORTED" });
  expect(await notes()).toEqual([]);
});

test("a COMMIT of the user's own is refused although nobody awaited it", async () => {
  const { database, notes } = await notebook();
  const tx = await database.begin();
  const forgotten = Promise.allSettled([tx.run(insert, ["a"]), tx.query("commit")]);
  await expect(tx.commit([{ statement: insert, params: ["b"] }])).rejects.toMatchObject({
    code: "TRANSACTION_CLOSED",
  });
  await tx.rollback();
  await forgotten;
  expect(await notes()).toEqual([]);
});

test("a failure nobody awaited still keeps the transaction from counting as committed", async () => {
  const { database, notes } = await notebook();
  const tx = await database.begin();
  const forgotten = tx.query("select 1 / 0").catch(() => "swallowed");
  await expect(tx.commit([{ statement: insert, params: ["b"] }])).rejects.toThrow();
  await forgotten;
  expect(await notes()).toEqual([]);
});

test("a deferred constraint that fails at the COMMIT is a clear no", async () => {
  const { database, admin, notes } = await notebook();
  await admin.query("alter table note add constraint later unique (text) deferrable initially deferred");
  await admin.query("alter table note drop constraint note_text_key");
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  await tx.run(insert, ["a"]);
  await expect(tx.commit()).rejects.toMatchObject({ code: "23505" });
  expect(await notes()).toEqual([]);
});

test("a connection that ends before the COMMIT is answered leaves it unknown, and here it did happen", async () => {
  const { url, notes } = await notebook();
  const wire = await Wire.to(url);
  onTestFinished(() => wire.close());
  wire.cutAfter("commit\u0000");
  const pool = new pg.Pool({ connectionString: wire.url, max: 1 });
  pool.on("error", () => undefined);
  onTestFinished(() => pool.end());
  const tx = await pgDatabase(pool).begin();
  await tx.run(insert, ["a"]);
  await expect(tx.commit()).rejects.toMatchObject({ code: "COMMIT_UNKNOWN", cause: expect.any(Error) });
  await expect.poll(notes).toEqual(["a"]);
  expect(pool.totalCount).toBe(0);
});

test("a server that is told to end the session during the COMMIT leaves it unknown", async () => {
  const { database, admin } = await notebook();
  await admin.query(
    `create function wait() returns trigger language plpgsql as 'begin perform pg_sleep(60); return null; end';
     create constraint trigger slow after insert on note deferrable initially deferred for each row execute function wait()`,
  );
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  const outcome = tx.commit().catch((error: unknown) => error);
  const cut = `select pg_terminate_backend(pid) from pg_stat_activity
                where wait_event = 'PgSleep' and datname = current_database()`;
  while ((await admin.query(cut)).rowCount === 0);
  expect(await outcome).toMatchObject({ code: "COMMIT_UNKNOWN" });
});

test("a transaction that sat idle too long is ended by the server, and its COMMIT is a clear no", async () => {
  const { database, pool, notes } = await notebook();
  const ended = new Promise<void>((resolve) => {
    pool.once("acquire", (client) => client.once("error", () => resolve()));
  });
  const tx = await database.begin({ idleTimeoutMs: 20 });
  await tx.run(insert, ["a"]);
  await ended;
  await expect(tx.commit()).rejects.toMatchObject({ code: "STORAGE_UNAVAILABLE" });
  expect(await notes()).toEqual([]);
  expect(pool.totalCount).toBe(0);
});

test("the idle limit does not outlive its transaction", async () => {
  const { database, pool } = await notebook();
  const tx = await database.begin({ idleTimeoutMs: 60_000 });
  await tx.run(insert, ["a"]);
  await tx.commit();
  const { rows } = await pool.query("show idle_in_transaction_session_timeout");
  expect(rows).toEqual([{ idle_in_transaction_session_timeout: "0" }]);
});

test("a destroyed transaction cuts its running query off and does not give its connection back", async () => {
  const { database, pool, admin, notes } = await notebook();
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  const hanging = tx.query("select pg_sleep(60)");
  const failed = expect(hanging).rejects.toThrow();
  await asleep(admin);
  tx.destroy();
  await failed;
  expect(pool.totalCount).toBe(0);
  await expect(tx.query("select 1")).rejects.toMatchObject({ code: "TRANSACTION_CLOSED" });
  await expect(tx.commit()).rejects.toMatchObject({ code: "TRANSACTION_CLOSED" });
  // The server notices a vanished client only when it next writes; do not leave it sleeping.
  await endSleepers(admin);
  expect(await notes()).toEqual([]);
});

test("a rollback that waits behind a hanging query can be cut off", async () => {
  const { database, pool, admin } = await notebook();
  const tx = await database.begin();
  const hanging = expect(tx.query("select pg_sleep(60)")).rejects.toThrow();
  await asleep(admin);
  const rollback = tx.rollback();
  tx.destroy();
  await Promise.all([hanging, rollback]);
  expect(pool.totalCount).toBe(0);
  await endSleepers(admin);
});

test("a rollback that is never answered gives up its connection", async () => {
  const { url, notes } = await notebook();
  const wire = await Wire.to(url);
  const pool = new pg.Pool({ connectionString: wire.url, max: 1 });
  pool.on("error", () => undefined);
  onTestFinished(() => wire.close());
  const tx = await pgDatabase(pool).begin();
  await tx.run(insert, ["a"]);
  wire.swallow();
  await tx.rollback();
  expect(pool.totalCount).toBe(0);
  wire.cut();
  expect(await notes()).toEqual([]);
}, 15_000);

test("after a rollback the connection is clean, and a second rollback does nothing", async () => {
  const { database, pool, notes } = await notebook();
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  await tx.rollback();
  await tx.rollback();
  expect(await notes()).toEqual([]);
  expect([pool.totalCount, pool.idleCount]).toEqual([1, 1]);
});

test("the isolation asked for is the one the server uses", async () => {
  const { database } = await notebook();
  const tx = await database.begin({ isolation: "serializable" });
  const { rows } = await tx.query("show transaction_isolation");
  await tx.rollback();
  expect([tx.isolation, rows]).toEqual(["serializable", [{ transaction_isolation: "serializable" }]]);
});

test("an isolation level that does not exist is refused before a connection is taken", async () => {
  const { database, pool } = await notebook();
  const isolation = "serializable; create table planted ()" as "serializable";
  await expect(database.begin({ isolation })).rejects.toMatchObject({ code: "OPTIONS_INVALID" });
  expect(pool.totalCount).toBe(pool.idleCount);
});
