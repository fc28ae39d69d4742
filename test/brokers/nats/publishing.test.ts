import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { describe, expect, onTestFinished, test } from "vitest";
import { aMessage } from "../../support/messages.ts";
import {
  ids,
  member,
  missing,
  newPrefix,
  openTransport,
  publish,
  sharedUrl,
  createTransport,
} from "./harness.ts";

async function manager() {
  const nc = await connect({ servers: sharedUrl.replace("nats://", "") });
  onTestFinished(() => nc.close());
  return jetstreamManager(nc);
}

describe.skipIf(missing)("publishing to JetStream", () => {
  test("B4, B10: a message sent twice is confirmed twice and stored once", async () => {
    const prefix = newPrefix();
    const transport = await openTransport({ servers: sharedUrl, prefix });
    const reader = await member(transport, { topic: "t", receive: (delivery) => delivery.ack() });
    const message = aMessage({ topic: "t" });
    expect(await publish(transport, message, message)).toEqual([
      { kind: "published" },
      { kind: "published" },
    ]);
    await publish(transport, message);
    await publish(transport, aMessage({ topic: "t", id: "last" }));
    await reader.until(1, ({ message: { id } }) => id === "last");
    expect(ids(reader.received).toSorted()).toEqual([message.id, "last"].toSorted());
    const jsm = await manager();
    expect((await jsm.streams.info(`${prefix}_messages`)).state.messages).toBe(2);
  });

  test("B4: what the server's max_payload does not hold is refused, and its neighbours go through", async () => {
    const transport = await openTransport({ servers: sharedUrl, prefix: newPrefix() });
    const data = (bytes: number): string => JSON.stringify("x".repeat(bytes));
    const { maxBytes } = transport.capabilities;
    const outcomes = await publish(
      transport,
      aMessage({ topic: "t", data: data(maxBytes - 100) }),
      aMessage({ topic: "t", data: data(1_048_576) }),
      aMessage({ topic: "t", data: data(16_000_000) }),
      aMessage({ topic: "t" }),
    );
    expect(outcomes.map(({ kind }) => kind)).toEqual(["published", "refused", "refused", "published"]);
    expect(outcomes[1]).toMatchObject({ error: { code: "PAYLOAD_TOO_LARGE" } });
  });

  test("B4: a topic that is no subject is refused", async () => {
    const transport = await openTransport({ servers: sharedUrl, prefix: newPrefix() });
    const outcomes = await publish(transport, aMessage({ topic: "a b" }), aMessage({ topic: "a.>" }));
    expect(outcomes.map(({ kind }) => kind)).toEqual(["refused", "refused"]);
  });

  test("B10: a stream that is full or deleted charges no message", async () => {
    const prefix = newPrefix();
    const transport = await openTransport({ servers: sharedUrl, prefix, maxStreamBytes: 2_000 });
    const many = Array.from({ length: 6 }, () => aMessage({ topic: "t" }));
    const outcomes = await publish(transport, ...many);
    expect(new Set(outcomes.map(({ kind }) => kind))).toEqual(new Set(["published", "unreachable"]));
    const jsm = await manager();
    await jsm.streams.delete(`${prefix}_messages`);
    const [gone] = await publish(transport, aMessage({ topic: "t" }));
    expect(gone).toMatchObject({ kind: "unreachable", error: { code: "TRANSPORT_UNREACHABLE" } });
  });

  test("B10: before it is connected, and after it is closed, nothing is sent and nothing thrown", async () => {
    const transport = createTransport({ servers: sharedUrl, prefix: newPrefix() });
    expect(await publish(transport, aMessage())).toMatchObject([{ kind: "unreachable" }]);
    await transport.open();
    await transport.open();
    await transport.close();
    expect(await publish(transport, aMessage())).toMatchObject([{ kind: "unreachable" }]);
    await expect(transport.open()).rejects.toMatchObject({ code: "TRANSPORT_UNREACHABLE" });
  });

  test("B4: another number of partitions than the stream was made for is refused", async () => {
    const prefix = newPrefix();
    await openTransport({ servers: sharedUrl, prefix, partitions: 4 });
    const other = createTransport({ servers: sharedUrl, prefix, partitions: 8 });
    await expect(other.open()).rejects.toMatchObject({ code: "OPTIONS_INVALID" });
  });

  test("A17: the depth of a topic is what its slowest group has not settled", async () => {
    const transport = await openTransport({ servers: sharedUrl, prefix: newPrefix() });
    await member(transport, { topic: "t", group: "quick", receive: (delivery) => delivery.ack() });
    const slow = await member(transport, { topic: "t", group: "slow", prefetch: 1 });
    await member(transport, { topic: "u", group: "loose", ordered: false, prefetch: 1 });
    const of = (topic: string, count: number) => Array.from({ length: count }, () => aMessage({ topic }));
    await publish(transport, ...of("t", 12), ...of("u", 3));
    await slow.until(1);
    const depths = await transport.depths?.(["t", "u", "nobody"]);
    expect(depths).toEqual(
      new Map([
        ["t", 12],
        ["u", 3],
        ["nobody", 0],
      ]),
    );
  });

  test("a group that is behind reports the age of its oldest message, also to a process without members", async () => {
    const prefix = newPrefix();
    const reader = await openTransport({ servers: sharedUrl, prefix });
    const transport = await openTransport({ servers: sharedUrl, prefix });
    const topics = [{ topic: "t", kind: "event" }] as const;
    for (const ordered of [true, false]) {
      const group = ordered ? "ordered" : "loose";
      const away = await member(reader, { topic: "t", group, ordered });
      await away.consumption.close();
      const lags = () => transport.lags?.([{ service: "test", group, ordered, topics }]);
      expect(await lags()).toEqual([{ group, topic: "t", waiting: 0, oldestAgeSeconds: 0 }]);
      await publish(transport, aMessage({ topic: "t" }), aMessage({ topic: "t" }));
      const hasAged = async (): Promise<boolean> => {
        const [lag] = (await lags()) ?? [];
        return lag?.waiting === 2 && typeof lag.oldestAgeSeconds === "number" && lag.oldestAgeSeconds >= 0.3;
      };
      await expect.poll(hasAged, { timeout: 20_000 }).toBe(true);
    }
  });
});
