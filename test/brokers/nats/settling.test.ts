import { describe, expect, test } from "vitest";
import { fromNatsHeaders } from "../../../src/transports/nats/header-mapping.ts";
import { toWire, type Delivery } from "../../../src/transport/index.ts";
import { aMessage } from "../../support/messages.ts";
import {
  connectClient,
  eventually,
  ids,
  member,
  missing,
  newPrefix,
  openTransport,
  publish,
  sharedUrl,
} from "./harness.ts";

const note = {
  error_type: "TypeError",
  error_message: "line one\nline two",
  stack_trace: "TypeError: x\r\n    at y (z.ts:1:2)\n",
  retry_count: "2",
  failed_at: "2026-01-02T03:04:05.678Z",
  source_topic: "t",
  consumer_group: "group",
  original_timestamp: "2026-01-02T03:04:05.678901Z",
};

describe.skipIf(missing)("settling deliveries of JetStream", () => {
  test("E3: a dead letter has its body unchanged, its own headers and the note, once", async () => {
    const prefix = newPrefix();
    const transport = await openTransport({ servers: sharedUrl, prefix });
    const reader = await member(transport, { topic: "t" });
    const message = aMessage({ topic: "t", headers: { "x-note": " ä % \t" }, key: "k" });
    await publish(transport, message);
    const [delivery] = await reader.until(1);
    await Promise.all([delivery?.deadLetter?.(note), delivery?.deadLetter?.(note)]);
    const { jsm } = await connectClient();
    const letter = await jsm.streams.getMessage(`${prefix}_dead`, {
      last_by_subj: `${prefix}.dlq.test.group`,
    });
    const { body, headers } = toWire(message);
    expect(Buffer.from(letter?.data ?? []).equals(body)).toBe(true);
    expect(fromNatsHeaders(letter?.header)).toEqual({ ...headers, ...note });
    expect((await jsm.streams.info(`${prefix}_dead`)).state.messages).toBe(1);
    await eventually(async () => (await transport.depths?.(["t"]))?.get("t") === 0);
  });

  test("E2: retries count as attempts only if `countsAsAttempt` is true, and body and headers stay as they were", async () => {
    const transport = await openTransport({ servers: sharedUrl, prefix: newPrefix() });
    const message = aMessage({ topic: "t", headers: { "x-tenant": "acme" } });
    const charges = [true, false, true];
    const reader = await member(transport, {
      topic: "t",
      receive: (delivery) => {
        const countsAsAttempt = charges.shift();
        if (countsAsAttempt === undefined) return delivery.ack();
        return delivery.retry({ delayMs: 20, countsAsAttempt, error: "as the test asked" });
      },
    });
    await publish(transport, message);
    const all = await reader.until(4);
    expect(all.map(({ attempt }) => attempt)).toEqual([1, 2, 2, 3]);
    for (const delivery of all) expect(delivery.message).toEqual(message);
  });

  test("E2: a retry belongs to its group alone", async () => {
    const transport = await openTransport({ servers: sharedUrl, prefix: newPrefix() });
    const other = await member(transport, {
      topic: "t",
      group: "other",
      receive: (delivery) => delivery.ack(),
    });
    const failing = await member(transport, {
      topic: "t",
      receive: (delivery) =>
        delivery.attempt === 1
          ? delivery.retry({ delayMs: 0, countsAsAttempt: true, error: "as the test asked" })
          : delivery.ack(),
    });
    await publish(transport, aMessage({ topic: "t" }));
    await failing.until(2);
    await publish(transport, aMessage({ topic: "t", id: "last" }));
    await other.until(2);
    expect(other.received.map(({ attempt }) => attempt)).toEqual([1, 1]);
  });

  test("I-09c: a handler that takes three times the server's patience gets its message once", async () => {
    const transport = await openTransport({ servers: sharedUrl, prefix: newPrefix(), ackWait: 1_000 });
    const ordered = await member(transport, { topic: "t", group: "ordered" });
    const loose = await member(transport, { topic: "t", group: "loose", ordered: false });
    await publish(transport, aMessage({ topic: "t", key: "k" }));
    for (const reader of [ordered, loose]) {
      const [delivery] = await reader.until(1);
      await new Promise((resolve) => setTimeout(resolve, 3_000));
      expect(reader.received).toHaveLength(1);
      expect(delivery?.signal.aborted).toBe(false);
      await delivery?.ack();
    }
    await eventually(async () => (await transport.depths?.(["t"]))?.get("t") === 0);
    expect(ordered.received).toHaveLength(1);
  });

  test("B7: a group that gave up order shares one consumer, and no delivery has an order key", async () => {
    const prefix = newPrefix();
    const [one, two] = [
      await openTransport({ servers: sharedUrl, prefix }),
      await openTransport({ servers: sharedUrl, prefix }),
    ];
    const all: string[] = [];
    const receive = (delivery: Delivery): void => {
      all.push(delivery.message.id);
      void delivery.ack();
    };
    const wishes = { topic: "t", ordered: false, prefetch: 3, receive };
    const members = [await member(one, wishes), await member(two, wishes)];
    const sent = Array.from({ length: 60 }, (_, n) => aMessage({ topic: "t", key: `k${n % 3}` }));
    await publish(one, ...sent);
    await eventually(() => all.length >= 60);
    expect(all.toSorted()).toEqual(sent.map(({ id }) => id).toSorted());
    for (const { received } of members) {
      expect(received.length).toBeGreaterThan(0);
      expect(received.every(({ orderKey }) => orderKey === null)).toBe(true);
    }
  });

  test("B7: a group without order gives back what it holds when it closes", async () => {
    const transport = await openTransport({ servers: sharedUrl, prefix: newPrefix() });
    const first = await member(transport, { topic: "t", ordered: false });
    await publish(transport, aMessage({ topic: "t", id: "a" }), aMessage({ topic: "t", id: "b" }));
    await (await first.until(2)).find(({ message }) => message.id === "a")?.ack();
    await first.consumption.close();
    const second = await member(transport, { topic: "t", ordered: false });
    expect(ids(await second.until(1))).toEqual(["b"]);
    expect(second.received[0]?.attempt).toBe(1);
  });

  test("D6: a group that gives up order, and one that takes it up, continue where they were", async () => {
    const transport = await openTransport({ servers: sharedUrl, prefix: newPrefix() });
    const seen: string[] = [];
    let round = 0;
    for (const ordered of [true, false, true, false]) {
      const current = await member(transport, {
        topic: "t",
        ordered,
        group: "wavering",
        receive: (delivery) => {
          seen.push(delivery.message.id);
          void delivery.ack();
        },
      });
      round += 1;
      await publish(transport, aMessage({ topic: "t", id: `during${round}`, key: "k" }));
      await current.until(1, ({ message }) => message.id === `during${round}`);
      await current.consumption.close();
      await publish(transport, aMessage({ topic: "t", id: `after${round}`, key: "k" }));
    }
    expect(seen).toEqual(["during1", "after1", "during2", "after2", "during3", "after3", "during4"]);
  });

  test("D6: a group that began at a time and takes up order before it has settled anything begins there again", async () => {
    const transport = await openTransport({ servers: sharedUrl, prefix: newPrefix() });
    await publish(transport, aMessage({ topic: "t", id: "old", key: "k" }));
    await new Promise((resolve) => setTimeout(resolve, 50));
    const topics = [{ topic: "t", kind: "event", from: { time: new Date() } }] as const;
    await publish(transport, aMessage({ topic: "t", id: "new", key: "k" }));
    for (const ordered of [false, true]) {
      const wavering = await member(transport, { topic: "t", topics, ordered, receive: () => undefined });
      expect(ids(await wavering.until(1))).toEqual(["new"]);
      await wavering.consumption.close();
    }
  });

  test("E1: bytes that are no message of ours come with the reason, from any sender", async () => {
    const prefix = newPrefix();
    const transport = await openTransport({ servers: sharedUrl, prefix });
    const reader = await member(transport, { topic: "t" });
    const { js } = await connectClient();
    await js.publish(`${prefix}.msg.t.0`, Buffer.from([0xff, 0x00, 0x0d, 0x0a]));
    const [delivery] = await reader.until(1);
    expect(delivery).toMatchObject({ flaw: { code: "ENVELOPE_INVALID" }, orderKey: null, attempt: 1 });
    await delivery?.deadLetter?.(note);
    const { jsm } = await connectClient();
    const letter = await jsm.streams.getMessage(`${prefix}_dead`, { seq: 1 });
    expect([...(letter?.data ?? [])]).toEqual([0xff, 0x00, 0x0d, 0x0a]);
  });
});
