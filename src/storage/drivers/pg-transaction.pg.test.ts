import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { asleep, endSleepers } from "../../../test/support/end-sleepers.ts";
import { Wire } from "../../../test/support/wire.ts";
import { statement } from "../statement.ts";
import { pgDatabase } from "./pg.ts";

const insert = statement("test.insert", "insert into note (text) values ($1::text) returning id");

async function setup(options: pg.PoolConfig = {}) {
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

test("what was written is there after the commit, and the connection is free again", async () => {
  const { database, pool, notes } = await setup();
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  await tx.query("insert into note (text) values ($1)", ["b"]);
  expect(await tx.commit()).toEqual([]);
  expect(await notes()).toEqual(["a", "b"]);
  expect([pool.totalCount, pool.idleCount, tx.open]).toEqual([1, 1, false]);
});

test("statements sent together with the COMMIT are part of it and answer with their rows", async () => {
  const { database, notes } = await setup();
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  const answers = await tx.commit([
    { statement: insert, params: ["b"] },
    { statement: insert, params: ["c"] },
  ]);
  expect(answers.map((answer) => answer.rows)).toEqual([[{ id: 2 }], [{ id: 3 }]]);
  expect(await notes()).toEqual(["a", "b", "c"]);
});

test("a transaction of nothing but its last statements commits too", async () => {
  const { database, notes } = await setup();
  const tx = await database.begin();
  await tx.commit([{ statement: insert, params: ["a"] }]);
  expect(await notes()).toEqual(["a"]);
});

test("a transaction in which nothing is asked never bothers the server", async () => {
  const { database, pool } = await setup();
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
  const { database, pool, notes } = await setup();
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  const last = { statement: insert, params: ["a"] };
  await expect(tx.commit([last, { statement: insert, params: ["b"] }])).rejects.toMatchObject({
    code: "23505",
  });
  expect(await notes()).toEqual([]);
  expect(pool.idleCount).toBe(1);
});

test("a COMMIT that the server answers with ROLLBACK is an error, not a success", async () => {
  const { database, notes } = await setup();
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  await tx.query("select 1 / 0").catch(() => "swallowed");
  await expect(tx.commit()).rejects.toMatchObject({ code: "TRANSACTION_ABORTED" });
  expect(await notes()).toEqual([]);
});

test.each([
  ["a COMMIT", "commit", ["a"]],
  ["a ROLLBACK", "rollback", []],
])("%s of the user's own inside the transaction is found out", async (_name, sql, left) => {
  const { database, notes } = await setup();
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  await tx.query(sql);
  await expect(tx.commit([{ statement: insert, params: ["b"] }])).rejects.toMatchObject({
    code: "TRANSACTION_CLOSED",
  });
  expect(await notes()).toEqual(left);
});

test("a COMMIT of the user's own is found out although nobody awaited it", async () => {
  const { database, notes } = await setup();
  const tx = await database.begin();
  const forgotten = [tx.run(insert, ["a"]), tx.query("commit")];
  await expect(tx.commit([{ statement: insert, params: ["b"] }])).rejects.toMatchObject({
    code: "TRANSACTION_CLOSED",
  });
  await Promise.all(forgotten);
  expect(await notes()).toEqual(["a"]);
});

test("a failure nobody awaited still keeps the transaction from counting as committed", async () => {
  const { database, notes } = await setup();
  const tx = await database.begin();
  const forgotten = tx.query("select 1 / 0").catch(() => "swallowed");
  await expect(tx.commit([{ statement: insert, params: ["b"] }])).rejects.toThrow();
  await forgotten;
  expect(await notes()).toEqual([]);
});

test("a deferred constraint that fails at the COMMIT is a clear no", async () => {
  const { database, admin, notes } = await setup();
  await admin.query("alter table note add constraint later unique (text) deferrable initially deferred");
  await admin.query("alter table note drop constraint note_text_key");
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  await tx.run(insert, ["a"]);
  await expect(tx.commit()).rejects.toMatchObject({ code: "23505" });
  expect(await notes()).toEqual([]);
});

test("a connection that ends before the COMMIT is answered leaves it unknown, and here it did happen", async () => {
  const { url, notes } = await setup();
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
  const { database, admin } = await setup();
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
  const { database, pool, notes } = await setup();
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
  const { database, pool } = await setup();
  const tx = await database.begin({ idleTimeoutMs: 60_000 });
  await tx.run(insert, ["a"]);
  await tx.commit();
  const { rows } = await pool.query("show idle_in_transaction_session_timeout");
  expect(rows).toEqual([{ idle_in_transaction_session_timeout: "0" }]);
});

test("a destroyed transaction cuts its running query off and does not give its connection back", async () => {
  const { database, pool, admin, notes } = await setup();
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
  const { database, pool, admin } = await setup();
  const tx = await database.begin();
  const hanging = expect(tx.query("select pg_sleep(60)")).rejects.toThrow();
  await asleep(admin);
  const rollback = tx.rollback();
  tx.destroy();
  await Promise.all([hanging, rollback]);
  expect(pool.totalCount).toBe(0);
  await endSleepers(admin);
});

test("after a rollback the connection is clean, and a second rollback does nothing", async () => {
  const { database, pool, notes } = await setup();
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  await tx.rollback();
  await tx.rollback();
  expect(await notes()).toEqual([]);
  expect([pool.totalCount, pool.idleCount]).toEqual([1, 1]);
});

test("the isolation asked for is the one the server uses", async () => {
  const { database } = await setup();
  const tx = await database.begin({ isolation: "serializable" });
  const { rows } = await tx.query("show transaction_isolation");
  await tx.rollback();
  expect([tx.isolation, rows]).toEqual(["serializable", [{ transaction_isolation: "serializable" }]]);
});

test("an isolation level that does not exist is refused before a connection is taken", async () => {
  const { database, pool } = await setup();
  const isolation = "serializable; create table planted ()" as "serializable";
  await expect(database.begin({ isolation })).rejects.toMatchObject({ code: "OPTIONS_INVALID" });
  expect(pool.totalCount).toBe(pool.idleCount);
});

test("a query that timed out on the client does not leave its connection in the pool", async () => {
  const { database, pool, admin } = await setup({ query_timeout: 1_000 });
  await expect(database.run(statement("test.sleep", "select pg_sleep(60)"))).rejects.toThrow(
    "Query read timeout",
  );
  expect(pool.totalCount).toBe(0);
  await endSleepers(admin);
  for (let i = 0; i < 1_000; i++) {
    const { rows } = await database.run<{ n: number }>(statement("test.n", "select $1::int as n"), [i]);
    expect(rows).toEqual([{ n: i }]);
  }
});

test("an SQL error leaves the connection usable, a session ended by the server does not", async () => {
  const { database, pool } = await setup();
  await expect(database.run(statement("test.div", "select 1 / 0"))).rejects.toMatchObject({ code: "22012" });
  expect(pool.totalCount).toBe(1);
  const suicide = statement("test.end", "select pg_terminate_backend(pg_backend_pid())");
  await expect(database.run(suicide)).rejects.toMatchObject({ code: "57P01" });
  expect(pool.totalCount).toBe(0);
});

test("a session that breaks says so once, and its connection is not used again", async () => {
  const { database, pool } = await setup();
  const session = await database.session("test", { lock_timeout: "1234ms" });
  const { rows } = await session.run(statement("test.show", "show lock_timeout"));
  expect(rows).toEqual([{ lock_timeout: "1234ms" }]);
  let told = 0;
  session.onBreak(() => (told += 1));
  await expect(
    session.run(statement("test.end", "select pg_terminate_backend(pg_backend_pid())")),
  ).rejects.toThrow();
  expect([session.broken, told]).toEqual([true, 1]);
  session.release();
  session.release();
  expect(pool.totalCount).toBe(0);
});

test("a session hears what it listens to", async () => {
  const { database, admin } = await setup();
  const session = await database.session("test");
  let hear: (notification: unknown) => void = () => undefined;
  const heard = new Promise((resolve) => (hear = resolve));
  await session.listen("news", (notification) => hear(notification));
  await admin.query("notify news, 'hello'");
  expect(await heard).toEqual({ channel: "news", payload: "hello" });
  session.release();
});

test.each([
  ["nobody listens", (url: URL) => (url.port = "1"), /cannot be reached.*ECONNREFUSED/],
  ["the database does not exist", (url: URL) => (url.pathname = "/nowhere"), /does not exist/],
  ["the role does not exist", (url: URL) => (url.username = "nobody_here"), /refused the login/],
])("when %s the error is typed and says so", async (_name, change, text) => {
  const { url } = await setup();
  const address = new URL(url);
  change(address);
  const database = pgDatabase(address.href);
  onTestFinished(() => database.close());
  await expect(database.begin()).rejects.toMatchObject({
    code: "STORAGE_UNAVAILABLE",
    message: expect.stringMatching(text),
  });
});

test("a client in the pool that breaks while idle is replaced without anybody noticing", async () => {
  const { database, pool, admin } = await setup();
  await database.run(statement("test.one", "select 1"));
  const removed = new Promise((resolve) => pool.once("remove", resolve));
  await admin.query(
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
  );
  await removed;
  const { rowCount } = await database.run(statement("test.one", "select 1"));
  expect(rowCount).toBe(1);
});
