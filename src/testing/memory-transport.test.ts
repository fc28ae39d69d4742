import { expect, test } from "vitest";
import type { Message } from "../message/index.ts";
import type { Delivery } from "../transport/index.ts";
import { aMessage } from "../../test/support/messages.ts";
import { MemoryTransport } from "./memory-transport.ts";

const { signal } = new AbortController();

function message(id: string, key: string | null = null): Message {
  return aMessage({ id, key, topic: "orders" });
}

async function member(transport: MemoryTransport, group = "g", prefetch = 10) {
  const received: Delivery[] = [];
  const waiting: (() => void)[] = [];
  const consumption = await transport.subscribe(
    {
      group,
      topics: [{ topic: "orders", kind: "event", from: "now" }],
      prefetch,
      worker: "w",
      service: "s",
      ordered: true,
    },
    (delivery) => {
      received.push(delivery);
      for (const wake of waiting.splice(0)) wake();
    },
  );
  const count = async (wanted: number): Promise<Delivery[]> => {
    while (received.length < wanted) await new Promise<void>((resolve) => waiting.push(resolve));
    return received;
  };
  return { received, count, consumption };
}

const ids = (deliveries: Delivery[]): string[] => deliveries.map((delivery) => delivery.message.id);
const nextTurn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("B7: each group gets its own copy, and the members of a group compete", async () => {
  const transport = new MemoryTransport();
  const [a, b, other] = [await member(transport), await member(transport), await member(transport, "other")];
  await transport.publish([message("1"), message("2"), message("3"), message("4")], { signal });
  await nextTurn();
  expect(ids(other.received)).toEqual(["1", "2", "3", "4"]);
  expect([a.received.length, b.received.length]).toEqual([2, 2]);
});

test("at most prefetch deliveries are unsettled", async () => {
  const transport = new MemoryTransport();
  const { received, count } = await member(transport, "g", 2);
  await transport.publish(
    ["1", "2", "3"].map((id) => message(id)),
    { signal },
  );
  await nextTurn();
  expect(ids(received)).toEqual(["1", "2"]);
  await received[0]?.ack();
  expect(ids(await count(3))).toEqual(["1", "2", "3"]);
});

test("a key stays with the member that holds unsettled messages of it", async () => {
  const transport = new MemoryTransport();
  const [a, b] = [await member(transport), await member(transport)];
  await transport.publish(
    ["1", "2", "3"].map((id) => message(id, "k")),
    { signal },
  );
  await nextTurn();
  expect(new Set([a.received.length, b.received.length])).toEqual(new Set([0, 3]));
});

test("a retried message is delivered as the next attempt before later released messages", async () => {
  const transport = new MemoryTransport();
  const { count } = await member(transport);
  await transport.publish(
    ["1", "2", "3"].map((id) => message(id, "k")),
    { signal },
  );
  const [first, second, third] = await count(3);
  await first?.retry({ delayMs: 5, countsAsAttempt: true, error: "no" });
  await second?.release();
  await third?.release();
  const again = (await count(6)).slice(3);
  expect(ids(again)).toEqual(["1", "2", "3"]);
  expect(again.map((delivery) => delivery.attempt)).toEqual([2, 1, 1]);
});

test("a retry with `countsAsAttempt: false` is not counted", async () => {
  const transport = new MemoryTransport();
  const { count } = await member(transport);
  await transport.publish([message("1")], { signal });
  await (await count(1))[0]?.retry({ delayMs: 0, countsAsAttempt: false, error: "no" });
  expect((await count(2))[1]?.attempt).toBe(1);
});

test("a delivery is settled once", async () => {
  const transport = new MemoryTransport();
  const { count } = await member(transport);
  await transport.publish([message("1")], { signal });
  const [delivery] = await count(1);
  await delivery?.ack();
  await delivery?.retry({ delayMs: 0, countsAsAttempt: true, error: "late" });
  expect(transport.backlog("g")).toBe(0);
});

test("unsettled deliveries of a leaving member are aborted and go to another member", async () => {
  const transport = new MemoryTransport();
  const a = await member(transport);
  await transport.publish([message("1", "k"), message("2", "k")], { signal });
  const [delivery] = await a.count(2);
  const b = await member(transport);
  await a.consumption.close();
  expect(ids(await b.count(2))).toEqual(["1", "2"]);
  expect(delivery?.signal.aborted).toBe(true);
});

test("a paused member receives nothing new but may settle", async () => {
  const transport = new MemoryTransport();
  const { count, consumption, received } = await member(transport, "g", 1);
  await transport.publish([message("1"), message("2")], { signal });
  await count(1);
  await consumption.pause();
  await received[0]?.ack();
  await nextTurn();
  expect(ids(received)).toEqual(["1"]);
});

test("messages without a subscriber wait for the first one; a later group may start at the beginning", async () => {
  const transport = new MemoryTransport();
  await transport.publish([message("1")], { signal });
  expect(ids(await (await member(transport)).count(1))).toEqual(["1"]);
  const late = await member(transport, "late");
  const seen: string[] = [];
  await transport.subscribe(
    {
      group: "archive",
      topics: [{ topic: "orders", kind: "event", from: "beginning" }],
      prefetch: 5,
      worker: "w",
      service: "s",
      ordered: true,
    },
    (delivery) => seen.push(delivery.message.id),
  );
  await nextTurn();
  expect([late.received, seen]).toEqual([[], ["1"]]);
});

test("B10: each scripted failure is returned once and nothing is published", async () => {
  const transport = new MemoryTransport();
  transport.failNext(1, "rejected");
  const outcomes = await transport.publish([message("1"), message("2")], { signal });
  expect(outcomes.map((outcome) => outcome.kind)).toEqual(["rejected", "published"]);
  expect(transport.published.map(({ id }) => id)).toEqual(["2"]);
});

test("between goDown and comeUp nothing is published, delivered or settled", async () => {
  const transport = new MemoryTransport();
  const { count, consumption } = await member(transport, "g", 1);
  await transport.publish([message("1"), message("2")], { signal });
  const [first] = await count(1);
  transport.goDown();
  expect((await transport.publish([message("3")], { signal }))[0]?.kind).toBe("unreachable");
  await expect(first?.ack()).rejects.toMatchObject({ code: "TRANSPORT_UNREACHABLE" });
  expect(consumption.health().ok).toBe(false);
  transport.comeUp();
  await first?.ack();
  expect(ids(await count(2))).toEqual(["1", "2"]);
});

test("B10: a hanging publish is unknown when it is aborted", async () => {
  const transport = new MemoryTransport();
  transport.hang();
  const sender = new AbortController();
  const outcomes = transport.publish([message("1")], { signal: sender.signal });
  sender.abort();
  expect((await outcomes)[0]?.kind).toBe("unknown");
});
