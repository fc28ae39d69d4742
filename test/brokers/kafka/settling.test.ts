import { describe, expect, test } from "vitest";
import { encodeEnvelope } from "../../../src/message/index.ts";
import { aMessage } from "../../support/messages.ts";
import {
  ackAll,
  eventually,
  Member,
  missing,
  newPrefix,
  publish,
  createTransport,
  rawTopic,
} from "./harness.ts";
import { readHeaders } from "./raw-topic.ts";

const note = {
  error_type: "CardClosed",
  error_message: "The card is closed – für immer.",
  stack_trace: "CardClosed: …\n  at pay",
  retry_count: "4",
  failed_at: "2026-01-02T03:04:05.678Z",
  source_topic: "events.order.placed",
  consumer_group: "billing",
  original_timestamp: "2026-01-02T03:04:05.678901Z",
};

describe.skipIf(missing)("settling at Kafka", () => {
  test("E3: a dead letter keeps its body, byte for byte, and says why in its headers", async () => {
    const prefix = newPrefix();
    const transport = createTransport({ prefix });
    const member = await Member.of(transport);
    const message = aMessage({ id: "dead", key: "k", headers: { "x-tenant": "acme" } });
    await publish(transport, message);
    const [delivery] = await member.got(1);
    await delivery?.deadLetter?.(note);
    const [buried] = await rawTopic(`${prefix}events.order.placed.dlq`).read();
    expect(buried?.value.toString()).toBe(encodeEnvelope(message));
    expect(buried?.key?.toString()).toBe("k");
    expect(readHeaders(buried as never)).toMatchObject({ ...note, "x-tenant": "acme", message_id: "dead" });
    await member.consumption?.close();
    const again = await Member.of(transport, { receive: ackAll });
    await publish(transport, aMessage({ id: "next" }));
    await again.got(1);
    expect(again.ids).toEqual(["next"]);
  });

  test("B2: a retry waits in the topic of its step, with the bytes of foreign headers as they were", async () => {
    const prefix = newPrefix();
    const transport = createTransport({ prefix, retrySteps: [500, "60s", "300s"] });
    const member = await Member.of(transport, { ordered: false });
    const topic = rawTopic(`${prefix}events.order.placed`);
    const bytes = Buffer.from([0, 255, 128, 10]);
    await topic.write(Buffer.from(encodeEnvelope(aMessage({ id: "x" }))), [["x-raw", bytes]]);
    await (await member.got(1))[0]?.retry({ delayMs: 400, countsAsAttempt: true, error: "no" });
    const [, second] = await member.got(2);
    expect(second?.attempt).toBe(2);
    await second?.retry({ delayMs: 30_000, countsAsAttempt: true, error: "no" });
    const steps = [1, 2].map((n) => rawTopic(`${prefix}events.order.placed.shop.billing.retry-${n}`));
    const [first, later] = await Promise.all(steps.map((step) => step.read()));
    expect([first?.length, later?.length]).toEqual([1, 1]);
    expect(later?.[0]?.headers.find(([name]) => name.toString() === "x-raw")?.[1]).toEqual(bytes);
    expect(readHeaders(later?.[0] as never)).toMatchObject({ "sagabox-attempt": "3" });
  });

  test("B7: a retry of one group is not seen by another", async () => {
    const transport = createTransport();
    const failing = await Member.of(transport, { group: "failing" });
    const other = await Member.of(transport, { group: "other", receive: ackAll });
    await publish(transport, aMessage({ id: "m" }));
    await (await failing.got(1))[0]?.retry({ delayMs: 100, countsAsAttempt: true, error: "no" });
    await (await failing.got(2))[1]?.ack();
    await publish(transport, aMessage({ id: "n" }));
    await other.got(2);
    expect(other.ids).toEqual(["m", "n"]);
  });

  test("a short delay is not held up by a longer one before it", async () => {
    const transport = createTransport();
    const member = await Member.of(transport, { ordered: false });
    await publish(transport, aMessage({ id: "slow" }), aMessage({ id: "quick" }));
    const deliveries = await member.got(2);
    const findDelivery = (id: string) => deliveries.find(({ message }) => message.id === id);
    await findDelivery("slow")?.retry({ delayMs: 9_000, countsAsAttempt: true, error: "no" });
    await findDelivery("quick")?.retry({ delayMs: 50, countsAsAttempt: true, error: "no" });
    const began = Date.now();
    const [, , again] = await member.got(3);
    expect(again?.message.id).toBe("quick");
    expect(Date.now() - began).toBeLessThan(8_000);
  });

  test("E1: bytes that are no message of ours come with the reason, and can be buried", async () => {
    const prefix = newPrefix();
    const transport = createTransport({ prefix });
    const member = await Member.of(transport);
    const topic = rawTopic(`${prefix}events.order.placed`);
    await topic.write(Buffer.from([0xff, 0xfe, 0]), [["x-raw", Buffer.from([0])]], "their key");
    await topic.write(Buffer.alloc(0));
    const [foreign, empty] = await member.got(2);
    expect(foreign?.flaw).toMatchObject({ code: "ENVELOPE_INVALID" });
    expect(foreign?.message).toMatchObject({ topic: "events.order.placed", key: "their key" });
    expect(empty?.flaw).toMatchObject({ code: "ENVELOPE_INVALID" });
    await foreign?.deadLetter?.(note);
    const [buried] = await rawTopic(`${prefix}events.order.placed.dlq`).read();
    expect(buried?.value).toEqual(Buffer.from([0xff, 0xfe, 0]));
  });

  test("a group that begins now misses nothing that is published after it has subscribed, though it crashes at once", async () => {
    const prefix = newPrefix();
    const first = createTransport({ prefix });
    await publish(first, aMessage({ id: "before", key: "a" }), aMessage({ id: "before too", key: "b" }));
    const crashed = await Member.of(first, { from: "now" });
    await publish(first, aMessage({ id: "after", key: "a" }));
    await crashed.consumption?.close();
    const heir = await Member.of(createTransport({ prefix }), { from: "now", receive: ackAll });
    await heir.got(1);
    expect(heir.ids).toEqual(["after"]);
  });

  test("a running group that takes up one more topic begins it where it asked to", async () => {
    const transport = createTransport();
    await publish(transport, aMessage({ id: "old", topic: "new.topic" }));
    const running = await Member.of(transport, { receive: ackAll });
    const second = await Member.of(transport, { topic: "new.topic", from: "now", receive: ackAll });
    await publish(transport, aMessage({ id: "one", topic: "new.topic" }), aMessage({ id: "two" }));
    await eventually(() => second.ids.length + running.ids.length >= 2);
    expect([second.ids, running.ids]).toEqual([["one"], ["two"]]);
  });

  test("A19, E2: through several retries the attempts are counted and the message stays as it was", async () => {
    const transport = createTransport();
    const member = await Member.of(transport, { prefetch: 1 });
    const message = aMessage({ id: "m", expiresAt: "2126-01-02T03:04:05Z" });
    await publish(transport, message);
    for (const [n, countsAsAttempt] of [true, false, true].entries())
      await (await member.got(n + 1))[n]?.retry({ delayMs: 20, countsAsAttempt, error: "no" });
    const last = (await member.got(4))[3];
    await last?.ack();
    expect(member.received.map(({ attempt }) => attempt)).toEqual([1, 2, 2, 3]);
    expect(last?.message).toEqual(message);
  });
});
