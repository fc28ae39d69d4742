import { expect, test } from "vitest";
import { z } from "zod";
import { ignore, permanent, retryAfter } from "../errors/index.ts";
import { command, event } from "../message/index.ts";
import { consumers } from "../../test/support/consumers.ts";
import { aMessage } from "../../test/support/messages.ts";
import type { HandlerContext, Received } from "./handler.ts";

const OrderPlaced = event("order.placed", { schema: z.object({ n: z.number().optional() }) });
const quick = { firstDelay: 1, maxDelay: 2 } as const;

const record = async (message: Received, { tx, consumer }: HandlerContext): Promise<void> => {
  await tx.query("insert into effect (consumer, id) values ($1, $2)", [consumer, message.id]);
};

test("D1, I-02c: three consumers of one event all run, once each, in the transaction of their dedupe row", async () => {
  const harness = await consumers();
  for (const consumer of ["billing", "mail", "stock"]) harness.registry.on(OrderPlaced, { consumer }, record);
  await harness.start();
  await harness.publish(aMessage({ id: "a" }));
  await harness.observer.until("consumer.processed", 3);
  expect((await harness.effects()).map((effect) => effect.consumer).sort()).toEqual([
    "billing",
    "mail",
    "stock",
  ]);
  const together = await harness.rows(
    `select count(*)::int as pairs from effect join sagabox.consumer_inbox as seen
         on seen.consumer_name = effect.consumer and seen.event_id = effect.id and seen.xmin = effect.xmin`,
  );
  // The dedupe row was updated later in the same transaction, so both carry its number.
  expect(together).toEqual([{ pairs: 3 }]);
});

test("D2: a duplicate does not run the handler and is acknowledged", async () => {
  const harness = await consumers();
  harness.registry.on(OrderPlaced, { consumer: "billing" }, record);
  await harness.start();
  await harness.publish(
    aMessage({ id: "a" }),
    aMessage({ id: "b" }),
    aMessage({ id: "a" }),
    aMessage({ id: "a" }),
  );
  await harness.observer.until("consumer.processed", 2);
  await harness.observer.until("consumer.duplicate", 2);
  expect(await harness.effects()).toHaveLength(2);
  await harness.stop();
  expect(harness.transport.backlog("billing")).toBe(0);
});

test("D3, E2: a failing handler leaves nothing behind, is retried, and succeeds later", async () => {
  const harness = await consumers();
  const attempts: number[] = [];
  harness.registry.on(OrderPlaced, { consumer: "billing", retry: quick }, async (message, context) => {
    attempts.push(context.attempt);
    await record(message, context);
    if (context.attempt < 3) throw new Error("card reader is away");
  });
  await harness.start();
  await harness.publish(aMessage());
  await harness.observer.until("consumer.processed");
  expect(attempts).toEqual([1, 2, 3]);
  expect(await harness.effects()).toHaveLength(1);
  expect(harness.observer.of("consumer.retried")).toMatchObject([
    { attempt: 1, countsAsAttempt: true, error: "card reader is away" },
    { attempt: 2, countsAsAttempt: true },
  ]);
});

test("D9: the inbox keeps topic, type, duration and result, and the payload only when asked", async () => {
  const harness = await consumers();
  harness.registry.on(OrderPlaced, { consumer: "plain" }, () => ({ total: 3 }));
  harness.registry.on(OrderPlaced, { consumer: "keeper", storePayload: true }, () => undefined);
  await harness.start();
  await harness.publish(aMessage({ id: "a", data: '{"n":1}' }));
  await harness.observer.until("consumer.processed", 2);
  const seen = await harness.rows(
    "select consumer_name as consumer, source_topic, event_type, processing_duration_ms >= 0 as timed, result, payload from sagabox.consumer_inbox order by 1",
  );
  const common = { source_topic: "events.order.placed", event_type: "order.placed", timed: true };
  expect(seen).toEqual([
    { consumer: "keeper", ...common, result: null, payload: '{"n":1}' },
    { consumer: "plain", ...common, result: '{"total":3}', payload: null },
  ]);
});

test("E2, E3: after its last attempt a message is dead-lettered with all details, and acknowledged", async () => {
  const harness = await consumers();
  harness.registry.on(OrderPlaced, { consumer: "billing", retry: { ...quick, maxAttempts: 3 } }, () => {
    throw new TypeError("always");
  });
  await harness.start();
  await harness.publish(aMessage({ id: "a" }));
  await harness.observer.until("dead_letter.buried");
  expect(await harness.deadLetters()).toMatchObject([
    { messageId: "a", consumer: "billing", reason: "exhausted", attempts: 3, errorType: "TypeError" },
  ]);
  await harness.stop();
  expect(harness.transport.backlog("billing")).toBe(0);
});

test("E1: verdicts of the handler are honoured", async () => {
  const harness = await consumers();
  let waited = false;
  harness.registry.on(OrderPlaced, { consumer: "billing" }, async (message, context) => {
    await record(message, context);
    if (message.id === "never") throw permanent("card is closed");
    if (message.id === "later" && !waited) {
      waited = true;
      throw retryAfter(5, "bank sleeps");
    }
    if (message.id === "skip") throw ignore("not ours");
  });
  await harness.start();
  await harness.publish(aMessage({ id: "never" }), aMessage({ id: "later" }), aMessage({ id: "skip" }));
  await harness.observer.until("dead_letter.buried");
  await harness.observer.until("consumer.processed");
  await harness.stop();
  expect((await harness.effects()).map((effect) => effect.id)).toEqual(["later"]);
  expect(harness.observer.of("consumer.retried")).toMatchObject([
    { countsAsAttempt: false, delayMs: 5, error: "bank sleeps" },
  ]);
  expect(await harness.deadLetters()).toMatchObject([
    { messageId: "never", reason: "rejected", attempts: 1 },
  ]);
  expect(await harness.rows("select event_id from sagabox.consumer_inbox order by 1")).toEqual([
    { event_id: "later" },
    { event_id: "skip" },
  ]);
});

test("C3, C4: old data is upcast; unreadable data is dead-lettered at once with the reason", async () => {
  const harness = await consumers();
  const Paid = event("paid", {
    version: 2,
    schema: z.object({ cents: z.number() }),
    upcast: { 1: (old: { euros: number }) => ({ cents: old.euros * 100 }) },
  });
  const seen: number[] = [];
  harness.registry.on(Paid, { consumer: "books" }, (message) => void seen.push(message.data.cents));
  await harness.start();
  const paid = { type: "paid", topic: "events.paid" } as const;
  await harness.publish(
    aMessage({ ...paid, data: '{"euros":7}' }),
    aMessage({ ...paid, id: "invalid", schemaVersion: 2, data: '{"cents":"7"}' }),
    aMessage({ ...paid, id: "broken", schemaVersion: 2, data: "{cents:" }),
    aMessage({ ...paid, id: "newer", schemaVersion: 3, data: '{"cents":1}' }),
  );
  await harness.observer.until("dead_letter.buried", 3);
  await harness.observer.until("consumer.processed");
  expect(seen).toEqual([700]);
  const letters = (await harness.deadLetters()).map(
    ({ messageId, reason, errorType }) => `${messageId} ${reason} ${errorType}`,
  );
  expect(letters.sort()).toEqual([
    "broken rejected PAYLOAD_NOT_JSON",
    "invalid rejected PAYLOAD_INVALID",
    "newer rejected PAYLOAD_VERSION_UNKNOWN",
  ]);
});

test("A19: an expired message is dead-lettered without running, by the database's clock", async () => {
  const harness = await consumers();
  harness.registry.on(OrderPlaced, { consumer: "billing" }, record);
  await harness.start();
  await harness.publish(
    aMessage({ id: "late", expiresAt: "2026-01-01T00:00:00Z" }),
    aMessage({ id: "good", expiresAt: "2999-01-01T00:00:00Z" }),
  );
  await harness.observer.until("dead_letter.buried");
  await harness.observer.until("consumer.processed");
  expect((await harness.effects()).map((effect) => effect.id)).toEqual(["good"]);
  expect(await harness.deadLetters()).toMatchObject([
    { messageId: "late", reason: "expired", errorType: "MESSAGE_EXPIRED" },
  ]);
});

test("D7, I-07c: messages without a usable id are dead-lettered, unless `idOf` finds one", async () => {
  const harness = await consumers();
  harness.registry.on(OrderPlaced, { consumer: "strict" }, record);
  harness.registry.on(
    OrderPlaced,
    { consumer: "wise", idOf: (message) => message.headers["request"] },
    record,
  );
  await harness.start();
  await harness.publish(
    aMessage({ id: "" }),
    aMessage({ id: "x".repeat(10_000), headers: { request: "r-1" } }),
  );
  await harness.observer.until("dead_letter.buried", 3);
  await harness.observer.until("consumer.processed");
  const letters = (await harness.deadLetters()).map(({ consumer, errorType }) => `${consumer} ${errorType}`);
  expect(letters.sort()).toEqual([
    "strict MESSAGE_ID_INVALID",
    "strict MESSAGE_ID_MISSING",
    "wise MESSAGE_ID_MISSING",
  ]);
  expect(
    await harness.rows("select consumer_name as consumer, event_id from sagabox.consumer_inbox"),
  ).toEqual([{ consumer: "wise", event_id: "r-1" }]);
});

test("an event without a handler is ignored, a command without a handler is dead-lettered", async () => {
  const harness = await consumers();
  harness.registry.on(OrderPlaced, { consumer: "billing" }, record);
  await harness.start();
  await harness.publish(
    aMessage({ id: "other", type: "order.seen" }),
    aMessage({ id: "another", type: "order.seen" }),
    aMessage({ id: "order", type: "order.pay", kind: "command" }),
  );
  await harness.observer.until("dead_letter.buried");
  await harness.stop();
  expect(harness.observer.of("consumer.passed_over")).toMatchObject([
    { consumer: "billing", type: "order.seen", first: true },
    { consumer: "billing", type: "order.seen", first: false },
  ]);
  expect(await harness.deadLetters()).toMatchObject([{ messageId: "order", errorType: "HANDLER_MISSING" }]);
  expect(harness.transport.backlog("billing")).toBe(0);
});

test("types that a consumer ignores by option are not reported as first seen", async () => {
  const harness = await consumers();
  harness.registry.on(OrderPlaced, { consumer: "billing", unknown: "ignore" }, record);
  await harness.start();
  await harness.publish(aMessage({ id: "other", type: "order.seen" }));
  expect(await harness.observer.until("consumer.passed_over")).toMatchObject([{ id: "other", first: false }]);
});

test("an invalid result is reported as the result and not as the payload", async () => {
  const harness = await consumers();
  const returning = (() => new Map()) as unknown as () => void;
  harness.registry.on(OrderPlaced, { consumer: "billing" }, returning);
  await harness.start();
  await harness.publish(aMessage({ id: "m" }));
  await harness.observer.until("dead_letter.buried");
  await harness.stop();
  expect(await harness.deadLetters()).toMatchObject([
    { errorMessage: expect.stringMatching(/^The handler's result, which is stored, is .*Map/) as string },
  ]);
});

test("a command's reply is stored; one that does not match its schema fails the handler", async () => {
  const harness = await consumers();
  const Reserve = command("stock.reserve", { schema: z.object({}), reply: z.object({ place: z.string() }) });
  harness.registry.on(Reserve, { consumer: "stock" }, (message) =>
    message.id === "good" ? { place: "A1" } : ({ place: 1 } as unknown as { place: string }),
  );
  await harness.start();
  const reserve = { type: "stock.reserve", topic: "commands.stock.reserve", kind: "command" } as const;
  await harness.publish(aMessage({ ...reserve, id: "good" }), aMessage({ ...reserve, id: "bad" }));
  await harness.observer.until("dead_letter.buried");
  await harness.observer.until("consumer.processed");
  expect(await harness.rows("select event_id, result from sagabox.consumer_inbox")).toEqual([
    { event_id: "good", result: '{"place":"A1"}' },
  ]);
});

test("B7: if the transport cannot begin at a time, the consumer does not start and reports why", async () => {
  const harness = await consumers({ transport: { capabilities: { replaysFromTime: false } } });
  harness.registry.on(OrderPlaced, { consumer: "billing", from: { time: new Date() } }, record);
  await expect(harness.start()).rejects.toMatchObject({
    code: "TRANSPORT_CANNOT_REPLAY",
    message: expect.stringContaining('"events.order.placed" cannot be read from a given time on memory'),
  });
});

test("a message without an id whose `idOf` throws is dead-lettered, not redelivered forever", async () => {
  const harness = await consumers();
  const idOf = (): string => {
    throw new TypeError("no header there");
  };
  harness.registry.on(OrderPlaced, { consumer: "wise", idOf }, record);
  await harness.start();
  await harness.publish(aMessage({ id: "" }), aMessage({ id: "behind" }));
  await harness.observer.until("consumer.processed");
  await harness.observer.until("dead_letter.buried");
  expect(await harness.deadLetters()).toMatchObject([{ reason: "rejected" }]);
});
