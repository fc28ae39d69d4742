import { expect, onTestFinished, test } from "vitest";
import { endSleepers, temporaryDatabase, notebook } from "../../../test/support/database.ts";
import { defineStatement } from "../statement.ts";
import { pgDatabase } from "./pg.ts";

test("a query that timed out on the client does not leave its connection in the pool", async () => {
  const { database, pool, admin } = await notebook({ query_timeout: 1_000 });
  await expect(database.run(defineStatement("test.sleep", "select pg_sleep(60)"))).rejects.toThrow(
    "Query read timeout",
  );
  expect(pool.totalCount).toBe(0);
  await endSleepers(admin);
  for (let i = 0; i < 1_000; i++) {
    const { rows } = await database.run<{ n: number }>(defineStatement("test.n", "select $1::int as n"), [i]);
    expect(rows).toEqual([{ n: i }]);
  }
});

test("an SQL error leaves the connection usable, a session ended by the server does not", async () => {
  const { database, pool } = await notebook();
  await expect(database.run(defineStatement("test.div", "select 1 / 0"))).rejects.toMatchObject({
    code: "22012",
  });
  expect(pool.totalCount).toBe(1);
  const suicide = defineStatement("test.end", "select pg_terminate_backend(pg_backend_pid())");
  await expect(database.run(suicide)).rejects.toMatchObject({ code: "57P01" });
  expect(pool.totalCount).toBe(0);
});

test("a statement that loses against another under a stricter role is tried again", async () => {
  const { database, admin } = await notebook({
    max: 6,
    options: "-c default_transaction_isolation=serializable",
  });
  await admin.query("create table counter as select 0 as n");
  const count = defineStatement("test.count", "update counter set n = n + 1");
  await Promise.all(Array.from({ length: 30 }, () => database.run(count)));
  expect((await admin.query("select n from counter")).rows).toEqual([{ n: 30 }]);
});

test("a connection that breaks in the moment it is handed out ends no process", async () => {
  const { database, pool } = await notebook();
  // The server's last word may come in one piece with its first, before anybody could listen.
  pool.once("acquire", (client) => process.nextTick(() => client.emit("error", new Error("cut"))));
  const { rows } = await database.run<{ n: number }>(defineStatement("test.one", "select 1 as n"));
  expect(rows).toEqual([{ n: 1 }]);
});

test("what is told leaves before anybody else's turn, on a connection that is there, and gives it back", async () => {
  const { database, pool } = await notebook();
  await database.run(defineStatement("test.one", "select 1"));
  const order: string[] = [];
  pool.once("acquire", () => order.push("told"));
  // As when a socket brings the answer to a COMMIT: whoever waits for it goes on in the same turn.
  await new Promise((resolve) => {
    setImmediate(() => {
      void Promise.resolve().then(() => order.push("waited"));
      resolve(database.runImmediately(defineStatement("test.two", "select 2"), []));
    });
  });
  expect(order).toEqual(["told", "waited"]);
  expect([pool.totalCount, pool.idleCount]).toEqual([1, 1]);
});

test("what is told waits for a connection where none is idle, and tells of failures", async () => {
  const { database, pool } = await notebook();
  const one = defineStatement("test.one", "select 1");
  expect(await database.runImmediately(one, [])).toMatchObject({ rowCount: 1 });
  const client = await pool.connect();
  const telling = database.runImmediately(one, []);
  client.release();
  expect(await telling).toMatchObject({ rowCount: 1 });
  await expect(
    database.runImmediately(defineStatement("test.div", "select 1 / 0"), []),
  ).rejects.toMatchObject({
    code: "22012",
  });
});

test("a pool that hands connections out by promise only is told through as well", async () => {
  const { pool } = await notebook();
  const promising = Object.assign(Object.create(pool) as typeof pool, { connect: () => pool.connect() });
  const database = pgDatabase(promising);
  await database.run(defineStatement("test.one", "select 1"));
  expect(await database.runImmediately(defineStatement("test.two", "select 2 as n"), [])).toMatchObject({
    rows: [{ n: 2 }],
  });
  expect(pool.idleCount).toBe(1);
});

test("a session that breaks says so once, and its connection is not used again", async () => {
  const { database, pool } = await notebook();
  const session = await database.session("test", { lock_timeout: "1234ms" });
  const { rows } = await session.run(defineStatement("test.show", "show lock_timeout"));
  expect(rows).toEqual([{ lock_timeout: "1234ms" }]);
  let told = 0;
  session.onBreak(() => (told += 1));
  await expect(
    session.run(defineStatement("test.end", "select pg_terminate_backend(pg_backend_pid())")),
  ).rejects.toThrow();
  expect([session.broken, told]).toEqual([true, 1]);
  session.release();
  session.release();
  expect(pool.totalCount).toBe(0);
});

test("a session hears what it listens to", async () => {
  const { database, admin } = await notebook();
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
  const { url } = await notebook();
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
  const { database, pool, admin } = await notebook();
  await database.run(defineStatement("test.one", "select 1"));
  const removed = new Promise((resolve) => pool.once("remove", resolve));
  await admin.query(
    "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()",
  );
  await removed;
  const { rowCount } = await database.run(defineStatement("test.one", "select 1"));
  expect(rowCount).toBe(1);
});

test("what a session is asked while it answers waits its turn, also behind a question that fails", async () => {
  const { database } = await notebook();
  const session = await database.session("test");
  const selectNumber = (n: number) =>
    session.run<{ n: number }>(defineStatement("test.n", "select $1::int as n"), [n]);
  const answers = await Promise.allSettled([
    selectNumber(1),
    session.run(defineStatement("test.div", "select 1 / 0")),
    selectNumber(2),
    selectNumber(3),
  ]);
  const told = answers.map((answer) => (answer.status === "fulfilled" ? answer.value.rows : "failed"));
  expect(told).toEqual([[{ n: 1 }], "failed", [{ n: 2 }], [{ n: 3 }]]);
  session.release();
});

test("a driver that cannot pipeline is given one question of a session at a time", async () => {
  const { database, pool } = await notebook();
  let [open, most] = [0, 0];
  pool.on("connect", (client) => {
    const query = client.query.bind(client) as (...args: unknown[]) => Promise<unknown>;
    const countedQuery = async (...args: unknown[]): Promise<unknown> => {
      most = Math.max(most, ++open);
      return query(...args).finally(() => (open -= 1));
    };
    Object.assign(client, { pipeline: undefined, query: countedQuery });
  });
  await (await database.begin()).commit(); // nor does one think that it can after a transaction
  most = 0;
  const session = await database.session("test");
  const selectNumber = (n: number) =>
    session.run<{ n: number }>(defineStatement("test.n", "select $1::int as n"), [n]);
  const answers = await Promise.all([1, 2, 3].map(selectNumber));
  expect([answers.map(({ rows }) => rows[0]?.n), most]).toEqual([[1, 2, 3], 1]);
  session.release();
});

test("a session that is given back does not wait for what it was asked", async () => {
  const { database, pool, admin } = await notebook();
  const session = await database.session("test");
  const asked = session.run(defineStatement("test.sleep", "select pg_sleep(60)"));
  const removed = new Promise((resolve) => pool.once("remove", resolve));
  session.release();
  await expect(asked).rejects.toThrow("Connection terminated");
  await removed;
  await endSleepers(admin);
});

test("G1: after it was closed, a pool of the user's own is still the one that is used", async () => {
  const { database, notes } = await notebook();
  await database.close();
  for (const text of ["one", "two", "three"]) {
    const tx = await database.begin();
    await tx.query("insert into note (text) values ($1)", [text]);
    await tx.commit();
    await new Promise((resolve) => setImmediate(resolve));
  }
  expect(await notes()).toEqual(["one", "two", "three"]);
});

test("G1: after it was closed, a pool of ours is not opened again", async () => {
  const { url } = await temporaryDatabase();
  const database = pgDatabase(url);
  const one = defineStatement("test.one", "select 1 as n");
  await database.run(one);
  await database.close();
  for (let i = 0; i < 2; i++) {
    await expect(database.run(one)).rejects.toMatchObject({ code: "BUS_STOPPED" });
    await new Promise((resolve) => setImmediate(resolve));
  }
});

test("O-17: a session reads what is committed, whatever the role's default isolation", async () => {
  const { database } = await notebook({ options: "-c default_transaction_isolation=serializable" });
  const session = await database.session("test");
  const { rows } = await session.run(defineStatement("test.isolation", "show transaction_isolation"));
  session.release();
  expect(rows).toEqual([{ transaction_isolation: "read committed" }]);
});

test("a pool that outlives many buses is listened to once", async () => {
  const { pool } = await temporaryDatabase();
  const before = pool.listenerCount("error");
  for (let bus = 0; bus < 12; bus++) pgDatabase(pool);
  expect([pool.listenerCount("error") - before, pool.listenerCount("connect")]).toEqual([1, 1]);
});
