import { spawnSync } from "node:child_process";
import { join } from "node:path";
import pg from "pg";
import { expect, test } from "vitest";
import { startEmbeddedPostgres } from "../src/embedded/index.ts";
import { Demo, demoFolder } from "./support/demo-process.ts";
import { until } from "./support/relays.ts";

test("npm start: the shop answers, an order is billed and shipped once, Ctrl-C leaves nothing, and the data is found again", async () => {
  const folder = demoFolder();
  const first = new Demo(folder);
  await first.ready();
  await until(async () => (await first.health()) === 200); // when it has its lanes
  expect(await first.postmaster()).toBeDefined();
  const id = await first.placeOrder();
  await until(async () => (await first.order(id)).shipped > 0, 30_000);
  expect(await first.order(id)).toMatchObject({ billed: 1, shipped: 1 });
  expect([await first.interrupt(), first.isAlive, await first.postmaster()], first.output).toEqual([
    0,
    false,
    undefined,
  ]);

  const second = new Demo(folder);
  await second.ready();
  expect(await second.order(id)).toMatchObject({ billed: 1, shipped: 1 });
  expect([await second.interrupt(), second.isAlive, await second.postmaster()], second.output).toEqual([
    0,
    false,
    undefined,
  ]);
}, 240_000);

test("npm start drops demo data made by other migrations, says so, and works", async () => {
  const folder = demoFolder();
  const server = await startEmbeddedPostgres({ dataDir: join(folder, "shop"), onNotice: () => undefined });
  const client = new pg.Client({ connectionString: server.url });
  await client.connect();
  await client.query(`create schema sagabox; create table public.shop_order (outdated text);
    create table sagabox.schema_migration (version integer primary key, name text, breaking boolean, checksum text,
                                           applied_at timestamptz default now());
    insert into sagabox.schema_migration values (1, 'message_path', false, 'x'), (13, 'message_domains', true, 'x')`);
  await client.end();
  await server.stop();

  const demo = new Demo(folder);
  await demo.ready();
  expect(demo.output).toContain(
    "The demo data was made by another version of sagabox. It is dropped and created again.\n",
  );
  const id = await demo.placeOrder();
  await until(async () => (await demo.order(id)).shipped > 0, 30_000);
  expect(await demo.interrupt(), demo.output).toBe(0);
}, 240_000);

test("npm start -- --help says how it is used, and starts nothing", () => {
  const run = join(import.meta.dirname, "../scripts/run.mjs");
  const { status, stdout } = spawnSync(process.execPath, [run, "start", "--help"], { encoding: "utf8" });
  expect(status).toBe(0);
  expect(stdout).toMatch(/^Usage: npm start \[-- --transport postgres\|rabbitmq/m);
  expect(stdout).not.toContain("Starting");
}, 60_000);
