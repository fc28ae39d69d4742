import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { CloudEvent, HTTP } from "cloudevents";
import { createBus, fromCloudEvent, toCloudEvent, toCloudEventJson, type Bus, type Message } from "sagabox";
import { expect, onTestFinished, test } from "vitest";
import { receiveCloudEvent, notifyPartner, transport } from "../../examples/guides/cloud-events.ts";
import { OrderPlaced } from "../../examples/guides/contracts.ts";
import { temporaryDatabase } from "../support/database.ts";

async function setup() {
  const { pool } = await temporaryDatabase({ max: 30 });
  await pool.query("create table guide_bill (order_id text not null, cents integer not null)");
  const bus = createBus({ service: "guide", database: pool, log: false });
  onTestFinished(async () => void (await bus.stop()));
  await bus.migrate();
  return { pool, bus };
}

async function placeOrder(bus: Bus, orderId: string): Promise<void> {
  await bus.transaction((tx) =>
    tx.publish(OrderPlaced, { orderId, cents: 500 }, { headers: { "x-tenant": "acme ä" } }),
  );
}

test("C2: a message that Postgres delivered is a CloudEvent and back again, in both modes", async () => {
  const { bus } = await setup();
  const seen: Message[] = [];
  bus.on(OrderPlaced, { consumer: "seen" }, (message) => {
    seen.push({ ...message, data: JSON.stringify(message.data) });
  });
  await bus.run();
  await placeOrder(bus, "ORD-1");
  await expect.poll(() => seen.length, { timeout: 20_000 }).toBe(1);
  const [message] = seen as [Message];
  expect(message).toMatchObject({ source: "guide", headers: { "x-tenant": "acme ä" } });
  expect(fromCloudEvent(toCloudEventJson(message), { topic: "elsewhere" })).toEqual(message);
  expect(fromCloudEvent(toCloudEvent(message), { topic: "elsewhere" })).toEqual(message);
  const { attributes, data } = toCloudEvent(message);
  expect(
    new CloudEvent({ ...attributes, type: message.type, data: JSON.parse(data) as unknown }).validate(),
  ).toBe(true);
});

test("C2: a handler can send a CloudEvent to a partner, whose SDK understands it", async () => {
  const { bus } = await setup();
  const received: unknown[] = [];
  const server = createServer((request, response) => {
    void readBody(request).then((body) => {
      received.push(HTTP.toEvent({ headers: request.headers, body }));
      response.end();
    });
  }).listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await once(server, "listening");
  notifyPartner(bus, `http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
  await bus.run();
  await placeOrder(bus, "ORD-2");
  await expect.poll(() => received.length, { timeout: 20_000 }).toBe(1);
  expect(received[0]).toMatchObject({
    source: "/guide",
    type: OrderPlaced.name,
    data: { orderId: "ORD-2", cents: 500 },
  });
});

test("C2: an event that a partner posts twice has one effect", async () => {
  const { pool, bus } = await setup();
  const event = new CloudEvent({
    source: "https://partner.example/orders",
    type: "com.partner.placed",
    id: "1",
    data: { orderId: "P-1" },
  });
  const body = String(HTTP.structured(event).body);
  const outcomes = [await receiveCloudEvent(bus, body), await receiveCloudEvent(bus, body)];
  expect(outcomes.map(({ kind }) => kind)).toEqual(["processed", "duplicate"]);
  const other = String(HTTP.structured(event.cloneWith({ source: "https://other.example/" })).body);
  expect((await receiveCloudEvent(bus, other)).kind).toBe("processed");
  expect((await pool.query("select count(*)::int as n from guide_bill")).rows).toEqual([{ n: 2 }]);
});

test("C2: the transport of the guide is one that can be had", () => {
  expect(transport.name).toBe("kafka");
});

async function readBody(request: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of request) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}
