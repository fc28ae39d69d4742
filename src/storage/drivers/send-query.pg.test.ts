import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { temporaryDatabase } from "../../../test/support/database.ts";
import { sendQuery, runAllInTime } from "./send-query.ts";
import { ConnectionWatch } from "./connection-watch.ts";
import type { PgClient } from "./pg-shape.ts";

async function setup(change: (client: pg.PoolClient) => object = () => ({}), Client = pg.Client) {
  const { url } = await temporaryDatabase();
  const pool = new pg.Pool({ connectionString: url, max: 1, Client } as pg.PoolConfig);
  const client = await pool.connect();
  onTestFinished(async () => {
    client.release(true);
    await pool.end();
  });
  return Object.assign(client, change(client)) as unknown as PgClient;
}

type Asking = (...args: unknown[]) => unknown;
const driversOwn = Object.getOwnPropertyDescriptor(pg.Client.prototype, "query") as PropertyDescriptor;

/** What people put in place of `query` to log what was asked. */
function withLogging(client: pg.PoolClient) {
  const asked: unknown[] = [];
  const own = client.query.bind(client) as (...args: unknown[]) => Promise<pg.QueryResult>;
  const query = async (...args: unknown[]): Promise<unknown> => {
    const result = await own(...args);
    asked.push(result.rowCount);
    return result;
  };
  return { query, asked };
}

test("a query is answered with its result or its error, and the next one is asked as if nothing had been", async () => {
  const client = await setup();
  await expect(sendQuery(client, "select 1 / $1::int", [0])).rejects.toMatchObject({ code: "22012" });
  await expect(sendQuery(client, "select $1::int as n", [7])).resolves.toMatchObject({ rows: [{ n: 7 }] });
});

test("of several that leave together it is told how each of them ended, in their order", async () => {
  const client = await setup();
  client.pipeline = true;
  expect(
    await runAllInTime(client, new ConnectionWatch(), ["begin", "select no_such_column", "commit"], 30_000),
  ).toMatchObject([
    { status: "fulfilled", value: { command: "BEGIN" } },
    { status: "rejected", reason: { code: "42703" } },
    { status: "fulfilled", value: { command: "ROLLBACK" } },
  ]);
});

test("a connection that is lost answers all of them", async () => {
  const client = await setup();
  client.on("error", () => undefined);
  client.pipeline = true;
  const answers = await runAllInTime(
    client,
    new ConnectionWatch(),
    ["begin", "select pg_terminate_backend(pg_backend_pid())", "commit"],
    30_000,
  );
  expect(answers.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "rejected"]);
});

test("a function in place of the driver's own that knows promises only is asked as it can answer", async () => {
  const client = await setup(withLogging);
  expect(
    await runAllInTime(client, new ConnectionWatch(), ["begin", "select 1 as n", "commit"], 30_000),
  ).toMatchObject([
    { value: { command: "BEGIN" } },
    { value: { rows: [{ n: 1 }] } },
    { value: { command: "COMMIT" } },
  ]);
  await expect(sendQuery(client, "select no_such_column")).rejects.toMatchObject({ code: "42703" });
  expect((client as unknown as ReturnType<typeof withLogging>).asked).toEqual([null, 1, null]);
});

test("so is a client of somebody's own", async () => {
  const asked: unknown[] = [];
  class Logged extends pg.Client {}
  const query = async function (this: pg.Client, ...args: unknown[]): Promise<unknown> {
    const result = (await Reflect.apply(driversOwn.value as Asking, this, args)) as pg.QueryResult;
    asked.push(result.command);
    return result;
  };
  Object.assign(Logged.prototype, { query });
  const client = await setup(undefined, Logged);
  const answers = await runAllInTime(client, new ConnectionWatch(), ["begin", "commit"], 30_000);
  expect(answers).toMatchObject([{ value: { command: "BEGIN" } }, { value: { command: "COMMIT" } }]);
  expect(asked).toEqual(["BEGIN", "COMMIT"]);
});

test("what takes the driver's place for everybody is not asked for an answer: the query has it", async () => {
  const patchedQuery = async function (this: pg.Client, ...args: unknown[]): Promise<unknown> {
    return Reflect.apply(driversOwn.value as Asking, this, args);
  };
  const client = await setup();
  Object.defineProperty(pg.Client.prototype, "query", { ...driversOwn, value: patchedQuery });
  onTestFinished(() => void Object.defineProperty(pg.Client.prototype, "query", driversOwn));
  await expect(sendQuery(client, "select 1 as n")).resolves.toMatchObject({ rows: [{ n: 1 }] });
  await expect(sendQuery(client, "select no_such_column")).rejects.toMatchObject({ code: "42703" });
});

test("a parameter that cannot be written fails its query, whatever comes behind it", async () => {
  const client = await setup();
  client.pipeline = true;
  const values = [
    {
      toPostgres: () => {
        throw new Error("cannot be written");
      },
    },
  ];
  const broken = { name: "broken", text: "select $1::text", values };
  expect(
    await runAllInTime(client, new ConnectionWatch(), ["begin", broken, "commit"], 30_000),
  ).toMatchObject([
    { status: "fulfilled" },
    { status: "rejected", reason: { message: "cannot be written" } },
    { status: "fulfilled" },
  ]);
});

test("a client that throws at once answers with that", async () => {
  const client = await setup(() => ({
    query: () => {
      throw new Error("no");
    },
  }));
  expect(await runAllInTime(client, new ConnectionWatch(), ["begin"], 30_000)).toMatchObject([
    { status: "rejected", reason: { message: "no" } },
  ]);
});
