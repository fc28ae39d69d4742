// The code in docs/guides/recipes.md is cut from examples/guides/recipes.ts; here it runs.
import { chmod, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { createBus, type Bus } from "sagabox";
import { eventually, MemoryTransport } from "sagabox/testing";
import { expect, onTestFinished, test, vi } from "vitest";
import { OrderPlaced } from "../../examples/guides/contracts.ts";
import * as recipes from "../../examples/guides/recipes.ts";
import { temporaryDatabase } from "../support/database.ts";

async function setup(): Promise<pg.Pool> {
  const { pool } = await temporaryDatabase({ max: 30, migrated: true });
  await pool.query("create table guide_bill (order_id text not null, cents integer not null)");
  return pool;
}

function stopLater(bus: Bus): Bus {
  onTestFinished(async () => void (await bus.stop()));
  return bus;
}

async function rowCount(pool: pg.Pool, sql: string): Promise<number | null> {
  return (await pool.query(sql)).rowCount;
}

test("a test file gets a bus on an empty database, which is dropped at the end", async () => {
  const pool = await setup();
  const { bus, pool: own, close } = await recipes.openTestBus((await temporaryDatabase()).url);
  await own.query("create table guide_bill (order_id text not null, cents integer not null)");
  expect(await recipes.billAndObserve(bus, "order-1")).toEqual(["order-1"]);
  const { rows } = await own.query<{ name: string }>("select current_database() as name");
  await close();
  expect(await rowCount(pool, `select 1 from pg_database where datname = '${rows[0]?.name}'`)).toBe(0);
});

test("one server for all test files is started, named in DATABASE_URL, and stopped", async () => {
  vi.stubEnv("DATABASE_URL", undefined);
  const dataDir = await mkdtemp(join(tmpdir(), "sagabox-recipe-"));
  onTestFinished(() => rm(dataDir, { recursive: true, force: true }));
  await chmod(dataDir, 0o755); // the account of the server must enter it
  const stop = await recipes.startTestServer(join(dataDir, "data"));
  const connect = () => new pg.Client({ connectionString: process.env["DATABASE_URL"] });
  const client = connect();
  try {
    await client.connect();
    expect((await client.query("select 1 as one")).rows).toEqual([{ one: 1 }]);
    await client.end();
  } finally {
    await stop();
  }
  await expect(connect().connect()).rejects.toThrow("ECONNREFUSED");
});

test("a test observes what a handler wrote and published", async () => {
  const pool = await setup();
  const bus = stopLater(createBus({ service: "shop", database: pool, log: false }));
  expect(await recipes.billAndObserve(bus, "order-1")).toEqual(["order-1"]);
  expect(await rowCount(pool, "select 1 from guide_bill where order_id = 'order-1'")).toBe(1);
});

test("the messages of one tenant are in its own schema", async () => {
  const pool = await setup();
  for (const tenant of ["a", "b"]) await recipes.busOfTenant(pool, tenant).migrate();
  const a = recipes.busOfTenant(pool, "a");
  await a.transaction((tx) => tx.publish(OrderPlaced, { orderId: "order-1", cents: 5 }, { delay: "1h" }));
  expect(await rowCount(pool, "select 1 from tenant_a.outbox_events")).toBe(1);
  expect(await rowCount(pool, "select 1 from tenant_b.outbox_events")).toBe(0);
});

test("a recurring job is written once per period", async () => {
  const bus = stopLater(createBus({ service: "shop", database: await setup(), log: false }));
  expect(await recipes.requestDailyReport(bus, "2030-01-01")).toBe(true);
  expect(await recipes.requestDailyReport(bus, "2030-01-01")).toBe(false);
  expect(await recipes.requestDailyReport(bus, "2030-01-02")).toBe(true);
});

test("a process that only publishes leaves its messages to a process that runs the relay", async () => {
  const pool = await setup();
  const publisher = stopLater(recipes.publisher(pool));
  await publisher.transaction((tx) => tx.publish(OrderPlaced, { orderId: "order-1", cents: 5 }));
  const pending = "select 1 from sagabox.outbox_events where status = 'pending'";
  expect(await rowCount(pool, pending)).toBe(1);
  stopLater(await recipes.runRelay(pool, new MemoryTransport()));
  await eventually(async () => (await rowCount(pool, pending)) === 0);
  expect(await rowCount(pool, pending)).toBe(0);
});
