import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { notebook } from "../../../test/support/database.ts";
import { defineStatement } from "../statement.ts";
import { ConnectionWatch } from "./connection-watch.ts";
import type { PgClient } from "./pg-shape.ts";
import { PgTransaction } from "./pg-transaction.ts";
import { pgDatabase } from "./pg.ts";

const insert = defineStatement("test.insert", "insert into note (text) values ($1::text) returning id");
const last = { statement: insert, params: ["last"] };

/** A notebook whose transaction can also be reached by its client, as an object mapper would. */
async function withClient(options: pg.PoolConfig = {}) {
  const book = await notebook(options);
  let client: pg.PoolClient | undefined;
  book.pool.on("acquire", (acquired) => (client = acquired));
  const behind = async (...texts: string[]): Promise<void> => {
    for (const text of texts) await client?.query(text);
  };
  /** Sends SQL on the client of the transaction and does not wait for the answer. */
  const behindUnawaited = (text: string): void => void client?.query(text).catch(() => undefined);
  return { ...book, behind, behindUnawaited };
}

const listPrepared = async (pool: pg.Pool): Promise<unknown[]> =>
  (await pool.query("select gid from pg_prepared_xacts where database = current_database()")).rows;

test.each([
  ["commit"],
  ["end"],
  ["abort"],
  ["rollback"],
  ["commit and chain"],
  ["rollback and chain"],
  ["rollback; begin"],
  ["/* /* */ */ commit"],
  ["prepare transaction 'p'"],
])("%j sent through the transaction is refused, and the transaction cannot commit any more", async (text) => {
  const { database, pool, admin, notes } = await notebook();
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  await expect(tx.query(text)).rejects.toMatchObject({ code: "TRANSACTION_CLOSED" });
  await tx.query("insert into note (text) values ('b')");
  await expect(tx.commit([last])).rejects.toMatchObject({ code: "TRANSACTION_CLOSED" });
  await tx.rollback();
  expect([await notes(), await listPrepared(admin), pool.idleCount]).toEqual([[], [], 1]);
});

test.each([
  ["rollback and chain", ["rollback and chain"]],
  ["rollback, then begin", ["rollback", "begin"]],
  ["rollback and begin in one text", ["rollback; begin"]],
  ["commit that fails, then begin", ["select 1/0", "commit", "begin"]],
])("a %s that passes the transaction by fails its commit, and nothing stays", async (_, texts) => {
  const { database, notes, behind } = await withClient();
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  for (const text of texts) await behind(text).catch(() => undefined);
  await expect(tx.run(insert, ["b"])).rejects.toMatchObject({ code: "TRANSACTION_CLOSED" });
  await expect(tx.commit([last])).rejects.toMatchObject({ code: "TRANSACTION_CLOSED" });
  await tx.rollback();
  expect(await notes()).toEqual([]);
});

test.each([
  ["commit and chain", ["commit and chain"]],
  ["commit, then begin", ["commit", "begin"]],
  ["commit", ["commit"]],
])("a %s that passes the transaction by is told as such, by commit and by rollback", async (_, texts) => {
  const { database, notes, behind } = await withClient();
  for (const [n, end] of (["commit", "rollback"] as const).entries()) {
    const tx = await database.begin();
    await tx.run(insert, [`a${n}`]);
    await behind(...texts);
    await expect(tx[end]()).rejects.toMatchObject({ code: "TRANSACTION_COMMITTED" });
    await tx.rollback().catch(() => undefined);
  }
  expect(await notes()).toEqual(["a0", "a1"]);
});

test("a transaction prepared behind its back does not count as committed", async () => {
  const { database, admin, behind } = await withClient();
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  await behind("prepare transaction 'orphan'");
  await expect(tx.commit([last])).rejects.toMatchObject({
    code: "TRANSACTION_COMMITTED",
    message: expect.stringContaining("PREPARE TRANSACTION"),
  });
  expect(await listPrepared(admin)).toEqual([{ gid: "orphan" }]);
  await admin.query("rollback prepared 'orphan'");
});

test.each([["savepoint s"], ["savepoint s; release s"], ["savepoint s; rollback to s"]])(
  "%j that passes the transaction by fails its commit",
  async (text) => {
    const { database, notes, behind } = await withClient();
    const tx = await database.begin();
    await tx.run(insert, ["a"]);
    await behind(text);
    await expect(tx.commit([last])).rejects.toMatchObject({ code: "TRANSACTION_CLOSED" });
    await tx.rollback();
    expect(await notes()).toEqual([]);
  },
);

test.each(["savepoint s", "savepoint s; release s"])(
  "a rollback and chain that passes the transaction by while %j is in flight fails its commit",
  async (text) => {
    const { database, notes, behindUnawaited } = await withClient();
    const tx = await database.begin();
    await tx.run(insert, ["a"]);
    const saved = tx.query(text);
    behindUnawaited("rollback and chain");
    await saved.catch(() => undefined);
    await expect(tx.commit([last])).rejects.toMatchObject({ code: "TRANSACTION_CLOSED" });
    await tx.rollback();
    expect(await notes()).toEqual([]);
  },
);

test("a rollback that passes the transaction by and that nobody awaited fails its commit", async () => {
  const { database, notes, behindUnawaited } = await withClient();
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  behindUnawaited("rollback and chain");
  await expect(tx.commit([last])).rejects.toMatchObject({ code: "TRANSACTION_CLOSED" });
  await tx.rollback();
  expect(await notes()).toEqual([]);
});

test.each(["commit", "rollback"] as const)(
  "a commit that passes the transaction by and that nobody awaited is told as such by %s",
  async (end) => {
    const { database, notes, behindUnawaited } = await withClient();
    const tx = await database.begin();
    await tx.run(insert, ["a"]);
    behindUnawaited("commit and chain");
    await expect(tx[end]()).rejects.toMatchObject({ code: "TRANSACTION_COMMITTED" });
    await tx.rollback().catch(() => undefined);
    expect(await notes()).toEqual(["a"]);
  },
);

test("savepoints sent through the transaction work, in one text or in several", async () => {
  const { database, notes } = await notebook();
  const tx = await database.begin();
  await tx.run(insert, ["a"]);
  await tx.query("savepoint s");
  await tx.run(insert, ["b"]);
  await tx.query("rollback to s; release s");
  await tx.query("savepoint s; insert into note (text) values ('c')");
  await tx.query("select 1/0").catch(() => undefined);
  await tx.query("rollback to s");
  await tx.run(defineStatement("test.mark", "savepoint own"));
  await tx.run(insert, ["d"]);
  await tx.run(defineStatement("test.back", "rollback to savepoint own"));
  await tx.commit([last]);
  expect(await notes()).toEqual(["a", "last"]);
});

test("what a hook of the pool does on a new connection is not taken for the transaction's", async () => {
  const { url, notes } = await notebook();
  const pool = new pg.Pool({ connectionString: url, max: 1 });
  onTestFinished(() => pool.end());
  pool.on("connect", (client) => {
    void client.query("begin").catch(() => undefined);
    void client.query("set local work_mem = '8MB'").catch(() => undefined);
    void client.query("commit").catch(() => undefined);
  });
  const tx = await pgDatabase(pool).begin();
  await tx.run(insert, ["a"]);
  await tx.commit([last]);
  expect(await notes()).toEqual(["a", "last"]);
});

/** A client as another driver of the same shape would hand it out: without the connection below it. */
function withoutTags(client: pg.PoolClient): PgClient {
  return new Proxy(client, {
    get: (target, name) => {
      if (name === "connection") return undefined;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" && name !== "constructor" ? (value.bind(target) as unknown) : value;
    },
    set: (target, name, value) => Reflect.set(target, name, value, target),
  }) as unknown as PgClient;
}

test.each([
  ["rollback and chain", []],
  ["commit and chain", ["a"]],
])("a driver that shows no command tags asks the server: %s", async (text, left) => {
  const { pool, notes } = await notebook();
  const good = new PgTransaction(withoutTags(await pool.connect()), {}, new ConnectionWatch());
  expect(good.seesEverything).toBe(false);
  await good.run(insert, ["good"]);
  await good.query("savepoint s");
  await good.query("rollback to s");
  expect(await good.commit([last])).toHaveLength(1);
  const client = await pool.connect();
  const tx = new PgTransaction(withoutTags(client), {}, new ConnectionWatch());
  await tx.run(insert, ["a"]);
  await client.query(text);
  await tx.run(insert, ["b"]);
  await expect(tx.commit([last])).rejects.toMatchObject({ code: "TRANSACTION_COMMITTED" });
  await tx.rollback();
  expect([await notes(), pool.idleCount]).toEqual([["good", "last", ...left], 1]);
});

test.each(["08006", "57P01", "25P03"])(
  "a deferred trigger that raises %s at the COMMIT is a clear no, since the session is still there",
  async (code) => {
    const { database, admin, notes } = await notebook();
    await admin.query(
      `create function fail() returns trigger language plpgsql as
         'begin raise exception ''not today'' using errcode = ''${code}''; end';
       create constraint trigger later after insert on note deferrable initially deferred
         for each row execute function fail()`,
    );
    const tx = await database.begin();
    await tx.run(insert, ["a"]);
    await expect(tx.commit()).rejects.toMatchObject({ code, message: "not today" });
    expect(await notes()).toEqual([]);
  },
);

test("an error of a last statement is explained by that statement alone", async () => {
  const { database, admin } = await notebook();
  const zero = defineStatement("test.zero", "select 1 / $1::integer");
  const explain = (error: unknown): unknown => Object.assign(new Error("ours"), { cause: error });
  const tx = await database.begin();
  const ask = [last, { statement: zero, params: [0], explain }];
  await expect(tx.commit(ask)).rejects.toThrow("ours");
  await admin.query(
    `create function fail() returns trigger language plpgsql as 'begin perform 1 / 0; end';
     create constraint trigger later after insert on note deferrable initially deferred
       for each row execute function fail()`,
  );
  const other = await database.begin();
  const again = [last, { statement: zero, params: [1], explain }];
  await expect(other.commit(again)).rejects.toMatchObject({ code: "22012" });
});
