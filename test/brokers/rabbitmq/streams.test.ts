import { afterEach, describe, expect, test } from "vitest";
import type { Subscription, Transport } from "sagabox/transport";
import { brokerUrl, closeAll, missing, ownPrefix, transport } from "./broker.ts";
import { Member, publishIds, topic, until } from "./member.ts";
import { Wire } from "../../support/wire.ts";

afterEach(closeAll);

const clicks = (from: Subscription["topics"][number]["from"]) => [
  topic({ topic: "streams.clicks", kind: "stream", from }),
];
const send = (to: Transport, ids: readonly string[]): Promise<string[]> =>
  publishIds(to, ids, { topic: "streams.clicks", kind: "stream" });
const keep = (): undefined => undefined;
const numberedIds = (from: number, to: number): string[] =>
  Array.from({ length: to - from }, (_, n) => `c${from + n}`);

describe.skipIf(missing !== undefined)("streams of RabbitMQ", () => {
  test("B6: a stream takes messages before it has a reader, and gives them to each group from the beginning", async () => {
    const shop = transport();
    await shop.open();
    expect(await send(shop, numberedIds(0, 20))).toEqual(Array(20).fill("published"));
    for (const group of ["early", "late"]) {
      const member = await Member.of(shop, { group, topics: clicks("beginning") });
      await member.got(20);
      expect(member.ids).toEqual(numberedIds(0, 20));
    }
  });

  test("a group that begins now gets what comes from now on", async () => {
    const shop = transport();
    await shop.open();
    await send(shop, ["before"]);
    const member = await Member.of(shop, { topics: clicks("now") });
    await send(shop, ["after"]);
    await member.got(1);
    expect(member.ids).toEqual(["after"]);
  });

  test("a group that reconnects continues behind what it has settled, and repeats what it has not", async () => {
    const prefix = ownPrefix();
    const shop = transport({ prefix });
    await shop.open();
    await send(shop, numberedIds(0, 10));
    const once = await Member.of(transport({ prefix }), { topics: clicks("beginning"), receive: keep });
    const deliveries = await once.got(10);
    for (const n of [0, 1, 2, 3, 6]) await deliveries[n]?.ack();
    await once.close();
    expect(deliveries[4]?.signal.aborted).toBe(true);
    const again = await Member.of(shop, { topics: clicks("beginning") });
    await again.got(6);
    expect(again.ids).toEqual(numberedIds(4, 10));
  });

  test("one member reads, and when it dies another continues where it was", async () => {
    const prefix = ownPrefix();
    const wire = await Wire.to(brokerUrl);
    const shop = transport({ prefix });
    await shop.open();
    const dying = await Member.of(transport({ prefix, url: wire.url }), { topics: clicks("beginning") });
    const heir = await Member.of(shop, { topics: clicks("beginning") });
    await send(shop, numberedIds(0, 50));
    await dying.got(50);
    expect(heir.ids).toEqual([]);
    wire.sever();
    await send(shop, numberedIds(50, 60));
    await until(() => heir.ids.includes("c59"), "what came after the death");
    // What it settled last may not have been written down when it died.
    const again = heir.ids.slice(0, -10);
    expect(heir.ids.slice(-10)).toEqual(numberedIds(50, 60));
    expect(again).toEqual(numberedIds(50 - again.length, 50));
    await closeAll();
    await wire.close();
  });

  test("a message of a stream is retried through the group's queue, and the stream continues meanwhile", async () => {
    const shop = transport();
    const member = await Member.of(shop, {
      topics: clicks("now"),
      receive: (delivery) =>
        delivery.message.id === "c1" && delivery.attempt === 1
          ? delivery.retry({ delayMs: 200, countsAsAttempt: true, error: "later" })
          : delivery.ack(),
    });
    await send(shop, numberedIds(0, 4));
    await member.got(5);
    expect(member.ids).toEqual(["c0", "c1", "c2", "c3", "c1"]);
    expect(member.received[4]?.attempt).toBe(2);
  });

  test("at most prefetch deliveries are unsettled at once, and what is released comes back", async () => {
    const shop = transport();
    const member = await Member.of(shop, { topics: clicks("now"), prefetch: 2, receive: keep });
    await send(shop, numberedIds(0, 6));
    const [first] = await member.got(2);
    expect(member.received.length).toBe(2);
    await first?.release();
    await member.got(3);
    expect(member.ids[2]).toBe("c0");
    for (let n = 1; n < 7; n++) await (await member.got(n + 1))[n]?.ack();
    expect(new Set(member.ids)).toEqual(new Set(numberedIds(0, 6)));
  });
});
