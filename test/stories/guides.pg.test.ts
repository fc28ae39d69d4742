// The code in docs/guides is cut from examples/guides; here it runs.
import { createServer } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type pg from "pg";
import postgres from "postgres";
import { createBus, message, permanent, type Bus } from "sagabox";
import { MemoryTransport } from "sagabox/testing";
import { expect, onTestFinished, test } from "vitest";
import { explainOrder, findProblems } from "../../examples/guides/admin.ts";
import * as consuming from "../../examples/guides/consuming.ts";
import { CustomerMoved, OrderPlaced, ReserveStock, StockCounted } from "../../examples/guides/contracts.ts";
import * as deadLetters from "../../examples/guides/dead-letters.ts";
import * as publishing from "../../examples/guides/publishing.ts";
import { temporaryDatabase, type TemporaryDatabase } from "../support/database.ts";
import { hookServer } from "../support/hook-server.ts";
import { ScriptedTransport } from "../support/scripted-transport.ts";
import { startCli } from "../support/run-cli.ts";

const tables = `
  create table guide_order (id text not null);
  create table guide_bill (order_id text not null, cents integer not null);
  create table guide_reservation (id text not null, sku text not null)`;

async function setup(): Promise<TemporaryDatabase & { bus: Bus }> {
  const database = await temporaryDatabase({ max: 30 });
  await database.pool.query(tables);
  const bus = createBus({ service: "guide", database: database.pool, log: false });
  onTestFinished(async () => void (await bus.stop()));
  await bus.migrate();
  return { ...database, bus };
}

async function until<T>(look: () => Promise<T>, good: (found: T) => boolean): Promise<T> {
  for (;;) {
    const found = await look();
    if (good(found)) return found;
    await sleep(20);
  }
}

async function column(pool: pg.Pool, sql: string): Promise<string[]> {
  const { rows } = await pool.query<{ found: string }>(sql);
  return rows.map((row) => row.found);
}

const bills = (pool: pg.Pool): Promise<string[]> =>
  column(pool, "select order_id as found from guide_bill order by 1");

test("an order is published with pg, postgres.js, bus.transaction, and with a flush", async () => {
  const { pool, url, bus } = await setup();
  const sql = postgres(url, { onnotice: () => undefined });
  onTestFinished(() => sql.end());
  consuming.billOrders(bus);
  await bus.run();
  await publishing.orderWithPg(pool, bus, "a");
  await publishing.orderWithPostgresJs(sql, bus, "b");
  await publishing.orderInOurs(bus, "c");
  await publishing.orderAndFlush(pool, bus, "d");
  await until(
    () => bills(pool),
    (found) => found.length >= 4,
  );
  expect(await bills(pool)).toEqual(["a", "b", "c", "d"]);
  expect(await column(pool, "select id as found from guide_order order by 1")).toEqual(["a", "b", "c"]);
});

test("many messages are published at once, later, urgently, and once per id", async () => {
  const { pool, bus } = await setup();
  consuming.billOrders(bus);
  await bus.run();
  await publishing.orderMany(bus, ["a", "b"]);
  await publishing.orderLater(bus, "later");
  await publishing.orderUrgently(bus, "urgent");
  expect(await publishing.orderOnce(bus, "request-1", "once")).toBe(true);
  expect(await publishing.orderOnce(bus, "request-1", "once")).toBe(false);
  await until(
    () => bills(pool),
    (found) => found.length >= 5,
  );
  expect(await bills(pool)).toEqual(["a", "b", "later", "once", "urgent"]);
  const waiting = `select partition_key as found from sagabox.outbox_events where status = 'pending'`;
  expect(await column(pool, waiting)).toEqual(["later"]);
});

test("a full outbox refuses, and the publisher gets an error", async () => {
  const { pool, bus } = await setup();
  const bounded = publishing.boundedBus(pool, 1);
  onTestFinished(async () => void (await bounded.stop()));
  expect(await publishing.orderUnlessFull(bounded, "first")).toBe("accepted");
  await publishing.orderWithPg(pool, bus, "waiting"); // no relay runs, so it stays
  const next = await until(
    () => publishing.orderUnlessFull(bounded, "next"),
    (outcome) => outcome === "busy",
  );
  expect(next).toBe("busy");
  await publishing.orderWhenThereIsRoom(bus, "unbounded");
  expect(await column(pool, "select partition_key as found from sagabox.outbox_events")).toContain(
    "unbounded",
  );
});

test("a bus before a broker pauses a topic that is full there, and refuses the limit where the depth is unknown", async () => {
  const { pool } = await setup();
  const transport = new ScriptedTransport();
  transport.depths = (topics) => Promise.resolve(new Map(topics.map((topic) => [topic, 100_000])));
  const bus = publishing.busBeforeABroker(pool, transport);
  onTestFinished(async () => void (await bus.stop()));
  await bus.run();
  await publishing.orderInOurs(bus, "a");
  await until(
    () => bus.health(),
    ({ destinations }) => destinations?.["events.guide.order.placed"] === "paused",
  );
  expect(bus.metrics()).toContain('transport_paused{topic="events.guide.order.placed"} 1');
  expect(() => publishing.busBeforeABroker(pool, new MemoryTransport())).toThrow(
    "does not report how many messages wait",
  );
});

test("a dead letter is reported to a function and to a webhook that can check the signature", async () => {
  const { pool } = await setup();
  const server = await hookServer();
  const notices: string[] = [];
  const bus = deadLetters.notifyingBus(pool, ({ messageId }) => notices.push(messageId), server.url);
  onTestFinished(async () => void (await bus.stop()));
  bus.on(OrderPlaced, { consumer: "none" }, () => {
    throw permanent("never");
  });
  await bus.run();
  const { id } = await bus.transaction((tx) => tx.publish(OrderPlaced, { orderId: "a", cents: 1 }));
  const [posted] = await server.until(1);
  const { body = "", headers } = posted ?? {};
  const signature = String(headers?.["sagabox-signature"]);
  const secret = "at least sixteen characters";
  expect(notices).toEqual([id]);
  expect(deadLetters.isGenuine(signature, body, secret)).toBe(true);
  expect(deadLetters.isGenuine(signature, `${body} `, secret)).toBe(false);
  expect(deadLetters.isGenuine(signature, body, "another secret")).toBe(false);
  expect(deadLetters.isGenuine(signature, body, secret, Date.now() + 3_600_000)).toBe(false);
});

test("handlers of every kind bill an order once each", async () => {
  const { pool, bus } = await setup();
  consuming.billOrders(bus);
  consuming.billInBatches(bus);
  consuming.billByStatement(bus);
  consuming.reserveStock(bus);
  await bus.run();
  await bus.transaction((tx) =>
    bus.publishAll(
      tx,
      message(OrderPlaced, { orderId: "a", cents: 1 }),
      message(ReserveStock, { orderId: "a", sku: "tea" }),
      message(CustomerMoved, { customerId: "c", address: { city: "Ghent" } }),
      message(StockCounted, { sku: "tea", count: 1 }),
    ),
  );
  const listReserved = (): Promise<string[]> => column(pool, "select id as found from guide_reservation");
  await until(
    async () => (await bills(pool)).length + (await listReserved()).length,
    (count) => count >= 4,
  );
  expect(await bills(pool)).toEqual(["a", "a", "a"]);
  expect(await listReserved()).toEqual(["r-a"]);
});

test("retries, verdicts and classes of failure end where the guide says", async () => {
  const { pool, bus } = await setup();
  const charged: string[] = [];
  consuming.billPatiently(bus, async (orderId) => {
    charged.push(orderId);
    if (orderId === "declined") throw Object.assign(new Error("no money"), { name: "CardDeclined" });
    if (orderId === "shaky" && charged.filter((id) => id === "shaky").length < 3)
      throw new Error("try again");
  });
  let asked = 0;
  consuming.billByVerdict(bus, (orderId) => {
    if (orderId === "limited") return (asked += 1) < 3 ? "limited" : "fine";
    return orderId;
  });
  await bus.run();
  await publishing.orderMany(bus, ["closed", "limited", "test", "stolen", "fine", "declined", "shaky"]);
  await until(
    async () => [(await bills(pool)).length, (await deadLetters.report(bus)).length, charged.length] as const,
    ([billed, dead, charges]) => billed >= 4 && dead >= 2 && charges >= 8,
  );
  expect(await bills(pool)).toEqual(["declined", "fine", "limited", "shaky"]);
  expect(charged.filter((id) => id === "shaky")).toHaveLength(3);
  expect(charged.filter((id) => id === "declined")).toHaveLength(1);
  expect((await deadLetters.report(bus)).map((line) => line.replace(/^\d+ /, "")).sort()).toEqual([
    "patient-billing guide.order.placed: rejected, no money",
    "verdicts guide.order.placed: rejected, the account is closed",
  ]);
});

test("dead letters are looked at, replayed and discarded", async () => {
  const { pool, bus } = await setup();
  let closed = true;
  consuming.billByVerdict(bus, (orderId) => (closed ? "closed" : orderId));
  await bus.run();
  await publishing.orderMany(bus, ["a", "b"]);
  const letters = await until(
    () => bus.deadLetters.list({ open: true }),
    (found) => found.length === 2,
  );
  const [last, first] = letters;
  expect(await deadLetters.look(bus, first?.id ?? "")).toMatch(
    /^guide\.order\.placed \{.*\} failed \d+ times/,
  );
  expect(await deadLetters.causes(bus)).toEqual([
    expect.stringMatching(/^[0-9a-f]{12} 2 × verdicts · guide/),
  ]);
  await deadLetters.discard(bus, last?.id ?? "");
  closed = false;
  expect(await deadLetters.replayAll(bus, "verdicts")).toBe(1);
  await until(
    () => bills(pool),
    (found) => found.length > 0,
  );
  expect(await bills(pool)).toEqual([first?.key]);
  expect(await deadLetters.report(bus)).toEqual([]);
});

test("the external service gets the same key at every attempt", async () => {
  const { bus } = await setup();
  const keys: unknown[] = [];
  const bank = createServer((request, response) => {
    keys.push(request.headers["idempotency-key"]);
    response.writeHead(keys.length < 2 ? 500 : 200).end();
  }).listen(0, "127.0.0.1");
  await once(bank, "listening");
  onTestFinished(() => void bank.close());
  consuming.chargeCards(bus, `http://127.0.0.1:${(bank.address() as AddressInfo).port}/`);
  await bus.run();
  await publishing.orderInOurs(bus, "a");
  await until(
    async () => keys.length,
    (count) => count === 2,
  );
  expect(keys[0]).toMatch(/^cards:/);
  expect(keys[1]).toBe(keys[0]);
});

test("the inbox alone handles a foreign message once and returns the first result", async () => {
  const { pool, bus } = await setup();
  const record = { eventId: "legacy-7", value: { orderId: "a" } };
  expect(await consuming.handleForeign(bus, record)).toEqual({ kind: "processed", result: "billed a" });
  expect(await consuming.handleForeign(bus, record)).toEqual({ kind: "duplicate", result: "billed a" });
  expect(await bills(pool)).toEqual(["a"]);
});

test("G1: the worker runs the application of the guide and stops cleanly", { timeout: 60_000 }, async () => {
  const { pool, url, bus } = await setup();
  const worker = startCli(["worker", "--app", "examples/guides/running.ts", "--port", "0"], {
    env: { DATABASE_URL: url },
  });
  await worker.waitForOutput("worker.started");
  await until(
    async () => (await bus.inbox.stats()).length + (await column(pool, subscribed)).length,
    (count) => count > 0,
  );
  await publishing.orderInOurs(bus, "a");
  await until(
    () => bills(pool),
    (found) => found.length > 0,
  );
  worker.child.kill("SIGTERM");
  expect((await worker.ended).code).toBe(0);
  expect(await bills(pool)).toEqual(["a"]);
});

const subscribed = "select topic as found from sagabox.subscription";

test("sagabox/admin finds what is wrong with the server, from the user's own code", async () => {
  const { pool } = await setup();
  const problems = await findProblems(pool); // the test server runs with fsync off
  expect(problems.filter((line) => line.startsWith("durability: fsync is off"))).toHaveLength(1);
  expect(problems.filter((line) => line.startsWith("conservation"))).toEqual([]);
});

test("explain() of sagabox/admin says what happens next to an order", async () => {
  const { pool, bus } = await setup();
  await publishing.orderWithPg(pool, bus, "a");
  expect(await explainOrder(pool, "a")).toContainEqual(
    expect.stringContaining("no running worker owns lane"),
  );
});
