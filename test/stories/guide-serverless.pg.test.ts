// The code in docs/guides/serverless.md is cut from examples/guides/serverless.ts; here it runs with the events of the platforms.
import { createBus, type LambdaKafkaEvent, type LambdaRabbitmqEvent, type LambdaSqsEvent } from "sagabox";
import type { Message } from "../../src/message/index.ts";
import { cloudEventBindings, toWire } from "../../src/transport/index.ts";
import { beforeEach, expect, onTestFinished, test, vi } from "vitest";
import { OrderPlaced } from "../../examples/guides/contracts.ts";
import { temporaryDatabase } from "../support/database.ts";
import { aMessage } from "../support/messages.ts";

beforeEach(() => void vi.resetModules());

async function setup() {
  const { pool, url } = await temporaryDatabase({ max: 30, migrated: true });
  await pool.query("create table guide_bill (order_id text primary key, cents integer not null)");
  vi.stubEnv("DATABASE_URL", url);
  vi.stubEnv("SAGABOX_LOG_LEVEL", "silent");
  vi.spyOn(console, "error").mockReturnValue();
  const shop = await import("../../examples/guides/serverless.ts");
  onTestFinished(async () => void (await shop.bus.stop()));
  const rows = async <R extends object>(sql: string): Promise<R[]> => (await pool.query<R>(sql)).rows;
  const bills = async (): Promise<string[]> =>
    (await rows<{ order_id: string }>("select order_id from guide_bill order by order_id")).map(
      (row) => row.order_id,
    );
  return { shop, rows, bills, url };
}

function placed(orderId: string, change: Partial<Message> = {}): Message {
  const topic = "events.guide.order.placed";
  const data = JSON.stringify({ orderId, cents: 100 });
  return aMessage({ id: `m-${orderId}`, type: OrderPlaced.name, topic, key: orderId, data, ...change });
}

const base64 = (bytes: Buffer | string): string => Buffer.from(bytes).toString("base64");

function kafkaEvent(...messages: readonly Message[]): LambdaKafkaEvent {
  const records = messages.map((message, offset) => {
    const { body, headers } = toWire(message, { format: "sagabox", binding: cloudEventBindings.kafka });
    const pairs = Object.entries(headers).map(([name, value]) => ({ [name]: [...Buffer.from(value)] }));
    return {
      topic: message.topic,
      partition: 0,
      offset,
      key: base64(message.key ?? ""),
      value: base64(body),
      headers: pairs,
    };
  });
  return { records: { "orders-0": records } };
}

function sqsEvent(fifo: boolean, ...bodies: readonly string[]): LambdaSqsEvent {
  return {
    Records: bodies.map((body, n) => ({
      messageId: `sqs-${n}`,
      body,
      attributes: { ApproximateReceiveCount: "1", ...(fifo ? { MessageGroupId: "g" } : {}) },
      messageAttributes: {},
      eventSourceARN: "arn:aws:sqs:eu-central-1:123456789012:orders",
    })),
  };
}

function rabbitmqEvent(...messages: readonly Message[]): LambdaRabbitmqEvent {
  const queue = messages.map((message) => {
    const { body, headers } = toWire(message);
    const values = Object.entries(headers).map(([name, value]) => [name, { bytes: [...Buffer.from(value)] }]);
    return {
      basicProperties: {
        contentType: "application/json",
        messageId: message.id,
        headers: Object.fromEntries(values) as object,
      },
      redelivered: false,
      data: base64(body),
    };
  });
  return { rmqMessagesByQueue: { "shop.billing::/": queue } } as LambdaRabbitmqEvent;
}

test("an order is billed after the response, by a cron route with the right secret, or by a scheduled function", async () => {
  const { shop, bills } = await setup();
  const { settled } = await import("../../examples/guides/next-after.ts");
  const post = (orderId: string): Promise<Response> =>
    shop.POST(
      new Request("http://shop/orders", { method: "POST", body: JSON.stringify({ orderId, cents: 5 }) }),
    );
  await shop.bus.drain();
  expect((await post("order-1")).status).toBe(202);
  await settled();
  expect(await bills()).toEqual(["order-1"]);

  await shop.bus.transaction((tx) => tx.publish(OrderPlaced, { orderId: "order-2", cents: 5 }));
  const get = (authorization: string): Promise<Response> =>
    shop.GET(new Request("http://shop/cron", { headers: { authorization } }));
  expect((await get("Bearer undefined")).status).toBe(401);
  vi.stubEnv("CRON_SECRET", "s3cret");
  expect((await get("Bearer wrong")).status).toBe(401);
  expect(await (await get("Bearer s3cret")).json()).toMatchObject({ sent: 1, handled: 1, more: false });
  expect(await bills()).toEqual(["order-1", "order-2"]);

  await shop.bus.transaction((tx) => tx.publish(OrderPlaced, { orderId: "order-3", cents: 5 }));
  const context = { getRemainingTimeInMillis: () => 30_000 };
  expect(await shop.onSchedule({ source: "aws.events" }, context)).toMatchObject({ handled: 1 });
});

test("in a Next.js server of its own, instrumentation starts a worker, but not in the edge runtime", async () => {
  const { shop, rows } = await setup();
  await shop.register();
  expect(await rows("select 1 from sagabox.member")).toEqual([]);
  vi.stubEnv("NEXT_RUNTIME", "nodejs");
  await shop.register();
  process.removeAllListeners("SIGTERM");
  await expect.poll(() => rows("select 1 from sagabox.member where not guest")).not.toEqual([]);
});

test("a Kafka batch is handled once, and the response names the failed record and those behind it", async () => {
  const { shop, bills } = await setup();
  const event = kafkaEvent(placed("a"), placed("b"), placed("c"));
  expect(await shop.onKafka(event)).toEqual({ batchItemFailures: [] });
  expect(await shop.onKafka(event)).toEqual({ batchItemFailures: [] });
  expect(await bills()).toEqual(["a", "b", "c"]);
  // The table refuses a second bill of an order, so this attempt fails.
  const failing = kafkaEvent(placed("d"), placed("a", { id: "another" }), placed("e"));
  const identifiers = [1, 2].map((offset) => ({ itemIdentifier: { partition: "orders-0", offset } }));
  const response = await shop.onKafka(failing);
  expect([response.batchItemFailures, await bills()]).toEqual([identifiers, ["a", "b", "c", "d"]]);
});

test("an SQS batch reports single messages; a FIFO queue also those behind a failed one", async () => {
  const { shop, bills } = await setup();
  const [a, again, b] = [placed("a"), placed("a", { id: "other" }), placed("b")].map((message) =>
    toWire(message).body.toString(),
  );
  const bodies = [a ?? "", again ?? "", b ?? ""];
  expect(await shop.onSqs(sqsEvent(false, ...bodies))).toEqual({
    batchItemFailures: [{ itemIdentifier: "sqs-1" }],
  });
  expect(await bills()).toEqual(["a", "b"]);
  const fifo = await shop.onSqs(sqsEvent(true, ...bodies));
  expect(fifo.batchItemFailures.map(({ itemIdentifier }) => itemIdentifier)).toEqual(["sqs-1", "sqs-2"]);
});

test("a RabbitMQ batch fails as a whole, and its repetition handles only what is missing", async () => {
  const { shop, bills, rows } = await setup();
  await shop.onRabbitmq(rabbitmqEvent(placed("a")));
  const batch = rabbitmqEvent(placed("b"), placed("a", { id: "other" }));
  await expect(shop.onRabbitmq(batch)).rejects.toThrow("whole batch");
  await rows("delete from guide_bill where order_id = 'a'");
  await shop.onRabbitmq(batch);
  expect(await bills()).toEqual(["a", "b"]);
});

test("a record that keeps failing becomes a dead letter, and one that is no message at once", async () => {
  const { shop, rows } = await setup();
  const { body } = toWire(placed("x", { data: JSON.stringify({ orderId: 5 }) }));
  const topic = "events.guide.order.placed";
  expect(await shop.bus.handle({ topic, body })).toEqual([{ consumer: "billing", outcome: "dead-lettered" }]);
  const notJson = { topic, body: "no message", headers: { "content-type": "text/plain" } };
  expect(await shop.bus.handle(notJson)).toEqual([{ consumer: "billing", outcome: "dead-lettered" }]);
  await shop.bus.handle({ topic, body: toWire(placed("a")).body });
  const failing = { topic, body: toWire(placed("a", { id: "other" })).body };
  for (let attempt = 1; attempt < 6; attempt++)
    await expect(shop.bus.handle(failing)).rejects.toMatchObject({ code: "RECORD_NOT_HANDLED" });
  expect(await shop.bus.handle(failing)).toEqual([{ consumer: "billing", outcome: "dead-lettered" }]);
  const reasons = await rows<{ reason: string }>("select reason from sagabox.dead_letter order by reason");
  expect(reasons.map(({ reason }) => reason)).toEqual(["exhausted", "rejected", "rejected"]);
  await expect(shop.bus.handle({ topic: "none", body: "{}" })).rejects.toMatchObject({
    code: "HANDLER_MISSING",
  });
  await expect(shop.bus.handle({ ...failing, consumer: "none" })).rejects.toMatchObject({
    code: "HANDLER_MISSING",
  });
});

test("the consumers of a record are independent: the one that failed gets it again, the others skip it", async () => {
  const { url } = await setup();
  const bus = createBus({ service: "shop", database: url, log: false });
  onTestFinished(async () => void (await bus.stop()));
  let fails = true;
  bus.on(OrderPlaced, { consumer: "one" }, () => undefined);
  bus.on(OrderPlaced, { consumer: "two" }, () => (fails ? Promise.reject(new Error("not yet")) : undefined));
  const record = { topic: "events.guide.order.placed", body: toWire(placed("a")).body };
  await expect(bus.handle(record)).rejects.toMatchObject({
    code: "RECORD_NOT_HANDLED",
    message: expect.stringContaining("not yet") as string,
  });
  fails = false;
  expect(await bus.handle(record)).toEqual([
    { consumer: "one", outcome: "duplicate" },
    { consumer: "two", outcome: "handled" },
  ]);
  expect(await bus.handle({ ...record, consumer: "one" })).toEqual([
    { consumer: "one", outcome: "duplicate" },
  ]);
});
