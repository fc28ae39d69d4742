import { setTimeout as sleep } from "node:timers/promises";
import { expect, onTestFinished, test } from "vitest";
import { serveShop } from "../../examples/shop/http.ts";
import { startLoad } from "../../examples/shop/load.ts";
import { openShop, type OrderView, type Shop } from "../../examples/shop/shop.ts";
import { temporaryDatabase, type TemporaryDatabase } from "../support/database.ts";
import { until } from "../support/relays.ts";

async function setup(
  database?: TemporaryDatabase,
): Promise<{ shop: Shop; url: string; stop: () => Promise<void> }> {
  const { pool } = database ?? (await temporaryDatabase({ max: 40 }));
  const shop = await openShop(pool, { log: false });
  await shop.bus.run();
  const server = await serveShop(shop, 0);
  let stopped: Promise<void> | undefined;
  const stop = (): Promise<void> =>
    (stopped ??= (async () => {
      await server.close();
      expect(await shop.bus.stop()).toEqual({ clean: true });
    })());
  onTestFinished(stop);
  return { shop, url: `http://127.0.0.1:${server.port}`, stop };
}

function post(url: string, body: string, type = "application/json"): Promise<Response> {
  return fetch(`${url}/orders`, { method: "POST", body, headers: { "content-type": type } });
}

async function waitForOrder(url: string, orderId: string, as = "completed"): Promise<OrderView> {
  for (;;) {
    const order = (await (await fetch(`${url}/orders/${orderId}`)).json()) as OrderView;
    if (order.status === as) return order;
    await sleep(20);
  }
}

const empty = {
  place: () => Promise.reject(new Error("Ordering is not allowed here.")),
  find: () => Promise.resolve(undefined),
};

/** For what never gets past the door. */
async function emptyShop(): Promise<string> {
  const server = await serveShop(empty, 0);
  onTestFinished(() => server.close());
  return `http://127.0.0.1:${server.port}`;
}

const tea = { sku: "tea", quantity: 2, customerId: "you" };

test("an order placed over HTTP is billed once and shipped once, and its history shows it", async () => {
  const { url } = await setup();
  const response = await post(url, JSON.stringify(tea));
  expect(response.status).toBe(202);
  const { orderId } = (await response.json()) as { orderId: string };
  const order = await waitForOrder(url, orderId);
  expect(order).toMatchObject({ orderId, billed: 1, shipped: 1 });
  const head = await fetch(`${url}/orders/${orderId}`, { method: "HEAD" });
  expect([head.status, await head.text()]).toEqual([200, ""]);
  expect(Number(head.headers.get("content-length"))).toBeGreaterThan(100);
  expect(order.events.map((event) => event.type).sort()).toEqual([
    "shop.order.billed",
    "shop.order.placed",
    "shop.order.shipped",
  ]);
});

test("sending everything again bills and ships nothing twice", async () => {
  const { shop, url } = await setup();
  const from = new Date(Date.now() - 60_000);
  const load = startLoad(shop, { ordersPerSecond: 100, maxOrders: 20, trouble: false });
  await until(() => load.orders >= 20);
  await load.stop();
  const orderId = await shop.place(tea);
  await waitForOrder(url, orderId);
  // Three commands, their replies and three mails for each order.
  await until(async () => (await countHandled(shop)) >= 189);
  expect(await countHandled(shop)).toBe(189);
  await shop.bus.republish({ from, to: new Date(Date.now() + 60_000) });
  // The last order's copies come back behind all others of their consumer, or beside them; wait for the count.
  await until(async () => (await duplicates(shop)) >= 189);
  expect(await duplicates(shop)).toBe(189);
  expect(await countHandled(shop)).toBe(189);
  expect(await waitForOrder(url, orderId)).toMatchObject({ billed: 1, shipped: 1 });
});

test("without a fault, every duplicate that the shop suppresses was sent on purpose", async () => {
  const { shop } = await setup();
  const load = startLoad(shop, { ordersPerSecond: 50, maxOrders: 60, resendEveryMs: 300 });
  await until(async () => load.orders >= 60 && (await shop.open()).running === 0, 60_000);
  await load.stop();
  expect(load.sentAgain).toBeGreaterThan(60);
  await until(async () => (await duplicates(shop)) >= load.sentAgain);
  await shop.bus.stop(); // lets what is being handled end
  expect(await duplicates(shop)).toBe(load.sentAgain);
});

test("an order whose card is declined is released, and no customer is billed", async () => {
  const { url } = await setup();
  const response = await post(url, JSON.stringify({ ...tea, customerId: "declined-bob" }));
  expect(response.status).toBe(202);
  const { orderId } = (await response.json()) as { orderId: string };
  const order = await waitForOrder(url, orderId, "compensated");
  expect(order).toMatchObject({ billed: 0, shipped: 0, refunded: 0, released: 1 });
  expect(order.problem).toBe("card declined");
});

test("an order whose bank is slow is not waited for: it is refunded and released, once each", async () => {
  const { shop, url } = await setup();
  const orderId = await shop.place({ ...tea, customerId: "slow-carl" });
  const order = await waitForOrder(url, orderId, "compensated");
  expect(order).toMatchObject({ billed: 1, shipped: 0, refunded: 1, released: 1 });
  expect(order.problem).toMatch(/no answer within/);
  expect(await shop.open()).toEqual({ running: 0, failed: 0 });
});

test("a stopped shop finds its orders again", async () => {
  const database = await temporaryDatabase({ max: 40 });
  const first = await setup(database);
  const orderId = await first.shop.place(tea);
  await first.stop();
  const second = await setup(database);
  expect(await waitForOrder(second.url, orderId)).toMatchObject({ billed: 1, shipped: 1 });
});

const refused: [name: string, body: string, type: string, reason: RegExp][] = [
  ["no JSON", "{sku", "application/json", /not valid JSON/],
  ["nothing", "", "application/json", /empty/],
  ["a list", "[]", "application/json", /the body: .*object/],
  ["a missing field", '{"sku":"tea","quantity":1}', "application/json", /customerId/],
  ["a wrong type", JSON.stringify({ ...tea, quantity: "2" }), "application/json", /quantity/],
  ["too small a number", JSON.stringify({ ...tea, quantity: 0 }), "application/json", /quantity/],
  ["a NUL", JSON.stringify({ ...tea, sku: "a\0b" }), "application/json", /sku: .*control/],
  [
    "half a character",
    String.raw`{"sku":"\ud800","quantity":1,"customerId":"you"}`,
    "application/json",
    /sku: .*lone surrogate/,
  ],
  ["an unknown field", JSON.stringify({ ...tea, price: 1 }), "application/json", /price/],
  ["too much", JSON.stringify({ ...tea, sku: "x".repeat(20_000) }), "application/json", /larger than/],
  ["no content type", JSON.stringify(tea), "", /application\/json.*none/],
  ["another content type", "sku=tea", "text/plain", /application\/json.*text\/plain/],
];

test.for(refused)("a body with %s is refused with 400 and the reason", async ([, body, type, reason]) => {
  const url = await emptyShop();
  const response = await post(url, body, type);
  expect(response.status).toBe(400);
  expect(((await response.json()) as { error: string }).error).toMatch(reason);
});

test("what does not exist is 404, what is not offered is 405 and says what is", async () => {
  const url = await emptyShop();
  const status = async (path: string, method = "GET"): Promise<[number, string | null]> => {
    const response = await fetch(`${url}${path}`, { method });
    await response.text();
    return [response.status, response.headers.get("allow")];
  };
  expect(await status("/orders/none")).toEqual([404, null]);
  expect(await status("/orders/%00%zz")).toEqual([404, null]);
  expect(await status("/elsewhere")).toEqual([404, null]);
  expect(await status("//")).toEqual([404, null]);
  expect(await status("//orders/none?x=http://y")).toEqual([404, null]);
  expect(await status("/orders")).toEqual([405, "POST"]);
  expect(await status("/orders/none", "DELETE")).toEqual([405, "GET, HEAD"]);
  expect(await status("/orders/none", "HEAD")).toEqual([404, null]);
});

test("a port in use is reported with the variable that changes it", async () => {
  const url = await emptyShop();
  await expect(serveShop(empty, Number(new URL(url).port))).rejects.toThrow(/in use.*PORT/);
});

function countHandled(shop: Shop): Promise<number> {
  return metric(shop, "consumer_inbox_processed_total");
}

function duplicates(shop: Shop): Promise<number> {
  return metric(shop, "consumer_inbox_duplicates_total");
}

async function metric(shop: Shop, name: string): Promise<number> {
  const lines = shop.bus
    .metrics()
    .split("\n")
    .filter((line) => line.startsWith(`${name}{`));
  return lines.reduce((sum, line) => sum + Number(line.split(" ").at(-1)), 0);
}
