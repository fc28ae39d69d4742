import postgres from "postgres";
import { expect, onTestFinished, test } from "vitest";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { defineStatement } from "../statement.ts";
import { toQueryable } from "./caller-transaction.ts";
import { pgDatabase } from "./pg.ts";

const insert = defineStatement("test.insert", "insert into note (text) values ($1::text) returning text");

async function setup() {
  const temporary = await temporaryDatabase();
  await temporary.pool.query("create table note (text text)");
  const sql = postgres(temporary.url, { max: 2, onnotice: () => undefined });
  onTestFinished(() => sql.end());
  const client = await temporary.pool.connect();
  onTestFinished(() => client.release());
  const notes = async () => (await temporary.pool.query("select text from note")).rows;
  return { ...temporary, client, sql, notes };
}

const notInTransaction = expect.objectContaining({ code: "NOT_IN_TRANSACTION" });

test("a pg client inside BEGIN takes the message along, into the commit and into the rollback", async () => {
  const { client, notes } = await setup();
  for (const end of ["rollback", "commit"]) {
    await client.query("begin");
    const { rows, rowCount } = await toQueryable(client).run(insert, [end]);
    expect([rows, rowCount]).toEqual([[{ text: end }], 1]);
    await client.query(end);
  }
  expect(await notes()).toEqual([{ text: "commit" }]);
});

test("a pg client without a transaction is refused, before BEGIN and after COMMIT", async () => {
  const { client } = await setup();
  expect(() => toQueryable(client)).toThrowError(notInTransaction);
  await client.query("begin");
  await client.query("commit");
  expect(() => toQueryable(client)).toThrowError(notInTransaction);
});

test("a pg client in a failed transaction is refused with another word", async () => {
  const { client } = await setup();
  await client.query("begin");
  await client.query("select 1 / 0").catch(() => "swallowed");
  // The client learns that the transaction has failed a moment after it has heard of the error.
  await client.query("select 1").catch(() => "swallowed");
  expect(() => toQueryable(client)).toThrowError(expect.objectContaining({ code: "TRANSACTION_ABORTED" }));
  await client.query("rollback");
});

test("a transaction that fails between the look and the write is refused by the same word", async () => {
  const { client } = await setup();
  await client.query("begin");
  const caller = toQueryable(client);
  await client.query("select 1 / 0").catch(() => "swallowed");
  await expect(caller.run(insert, ["late"])).rejects.toThrowError(
    expect.objectContaining({ code: "TRANSACTION_ABORTED" }),
  );
  await client.query("rollback");
});

test("a pg pool is refused and told what to pass instead", async () => {
  const { pool } = await setup();
  expect(() => toQueryable(pool)).toThrowError(/pool.*BEGIN/s);
});

test("the tx of postgres.js takes the message along, into the commit and into the rollback", async () => {
  const { sql, notes } = await setup();
  await sql.begin(async (tx) => {
    const { rows, rowCount } = await toQueryable(tx).run(insert, ["commit"]);
    expect([rows, rowCount]).toEqual([[{ text: "commit" }], 1]);
  });
  const undone = sql.begin(async (tx) => {
    await toQueryable(tx).run(insert, ["rollback"]);
    throw new Error("no");
  });
  await expect(undone).rejects.toThrow("no");
  expect(await notes()).toEqual([{ text: "commit" }]);
});

test("a savepoint of postgres.js is a transaction too", async () => {
  const { sql, notes } = await setup();
  await sql.begin(async (tx) => {
    await tx.savepoint((inner) => toQueryable(inner).run(insert, ["inner"]));
  });
  expect(await notes()).toEqual([{ text: "inner" }]);
});

test("the root of postgres.js and a reserved connection are refused", async () => {
  const { sql } = await setup();
  expect(() => toQueryable(sql)).toThrowError(notInTransaction);
  const reserved = await sql.reserve();
  expect(() => toQueryable(reserved)).toThrowError(notInTransaction);
  reserved.release();
});

test("our own transaction is taken as it is", async () => {
  const { pool } = await setup();
  const tx = await pgDatabase(pool).begin();
  expect(toQueryable(tx)).toBe(tx);
  await tx.rollback();
});

test.each([undefined, null, 1, "begin", {}, () => undefined, { query: () => undefined }])(
  "%s is no transaction",
  (value) => {
    expect(() => toQueryable(value)).toThrowError(notInTransaction);
  },
);

test.each(["camel", "pascal", "kebab"] as const)(
  "the names of our columns survive postgres.%s, which the user chose for theirs",
  async (transform) => {
    const { url } = await setup();
    const sql = postgres(url, { max: 1, onnotice: () => undefined, transform: postgres[transform] });
    onTestFinished(() => sql.end());
    const read = defineStatement("test.names", "select $1::text as key_id, true as own");
    const { rows } = await sql.begin((tx) => toQueryable(tx).run(read, ["k"]));
    expect(rows).toEqual([{ key_id: "k", own: true }]);
  },
);
