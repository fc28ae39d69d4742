import { afterEach, describe, expect, test } from "vitest";
import { aMessage } from "../../support/messages.ts";
import { closeAll, directly, missing, ownPrefix, server, transport } from "./broker.ts";
import { Member, publish, publishIds, topic, until } from "./member.ts";

afterEach(closeAll);

describe.skipIf(missing !== undefined)("publishing to RabbitMQ", () => {
  test("B3, B6: a foreign reader bound by wildcards sees a persistent message with its headers and keys", async () => {
    const prefix = ownPrefix();
    const shop = transport({ prefix });
    await shop.open();
    await directly(async (channel) => {
      await channel.assertExchange(`${prefix}.event.order`, "topic", { durable: true });
      await channel.assertQueue(`${prefix}.foreign`, { durable: true });
      await channel.bindQueue(`${prefix}.foreign`, `${prefix}.event.order`, "*.order.#.critical");
      const message = aMessage({ source: "shop", headers: { severity: "critical", "x-tenant": "acme" } });
      expect(await publish(shop, message, aMessage())).toMatchObject([
        { kind: "published" },
        { kind: "rejected" },
      ]);
      const got = await channel.get(`${prefix}.foreign`, { noAck: true });
      if (got === false) throw new Error("nothing came");
      expect(got.fields.routingKey).toBe("shop.order.placed.critical");
      expect(got.properties).toMatchObject({ deliveryMode: 2, messageId: message.id, appId: "shop" });
      expect(got.properties.headers).toMatchObject({ message_id: message.id, "x-tenant": "acme" });
      expect(JSON.parse(got.content.toString())).toMatchObject({ metadata: { message_id: message.id } });
      await channel.deleteQueue(`${prefix}.foreign`);
    });
  });

  test("B3: what no queue takes is rejected, and says where it was meant to go", async () => {
    const shop = transport();
    await shop.open();
    const [outcome] = await publish(shop, aMessage({ topic: "commands.stock.reserve", kind: "command" }));
    expect(outcome).toMatchObject({
      kind: "rejected",
      error: { code: "TRANSPORT_UNROUTABLE", message: expect.stringContaining("stock.reserve") as string },
    });
  });

  test("B3: an event without a reader is an error unless it may be dropped; a command always is", async () => {
    const event = aMessage({ topic: "events.order.placed" });
    const command = aMessage({ topic: "commands.stock.reserve", kind: "command" });
    const [strictly, leniently] = [transport(), transport({ unrouted: "drop" })];
    await Promise.all([strictly.open(), leniently.open()]);
    const strict = await publish(strictly, event, command);
    expect(strict.map(({ kind }) => kind)).toEqual(["rejected", "rejected"]);
    const lenient = await publish(leniently, event, command);
    expect(lenient.map(({ kind }) => kind)).toEqual(["published", "rejected"]);
  });

  test("P-12: a message over the limit is refused and the others go out", async () => {
    const shop = transport({ maxBytes: 2_048 });
    const member = await Member.of(shop);
    const large = aMessage({ data: JSON.stringify("x".repeat(4_096)) });
    const outcomes = await publish(shop, aMessage({ id: "a" }), large, aMessage({ id: "b" }));
    expect(outcomes.map(({ kind }) => kind)).toEqual(["published", "refused", "published"]);
    await member.got(2);
    expect(member.ids.toSorted()).toEqual(["a", "b"]);
  });

  test("headers that do not fit in a frame travel in the body alone", async () => {
    const shop = transport();
    const member = await Member.of(shop);
    const headers = Object.fromEntries(Array.from({ length: 40 }, (_, n) => [`h${n}`, "v".repeat(8_000)]));
    const message = aMessage({ headers });
    expect(await publish(shop, message)).toEqual([{ kind: "published" }]);
    const [delivery] = await member.got(1);
    expect(delivery?.message).toEqual(message);
  });

  test.each(["quorum", "classic"] as const)(
    "P-04, A16: a full %s queue accepts nothing more, and no attempt is counted",
    async (queues) => {
      const shop = transport({ queues, maxLength: 3, partitions: 1 });
      const member = await Member.of(shop, { prefetch: 1, receive: () => undefined });
      const outcomes: string[] = [];
      for (let n = 0; n < 12; n++) outcomes.push(...(await publishIds(shop, [`m${n}`])));
      expect(outcomes[0]).toBe("published");
      expect(new Set(outcomes)).toEqual(new Set(["published", "unreachable"]));
      expect((await shop.depths(["events.order.placed"])).get("events.order.placed")).toBeGreaterThanOrEqual(
        3,
      );
      const accepted = outcomes.filter((kind) => kind === "published").length;
      for (let n = 0; n < accepted; n++) await (await member.got(n + 1))[n]?.ack();
      expect(await publishIds(shop, ["again"])).toEqual(["published"]);
    },
  );

  test("P-11: an exchange that was deleted is declared again", async () => {
    const prefix = ownPrefix();
    const shop = transport({ prefix });
    const early = await Member.of(shop);
    expect(await publishIds(shop, ["a"])).toEqual(["published"]);
    await early.got(1);
    await directly((channel) => channel.deleteExchange(`${prefix}.event.order`));
    const [gone] = await publishIds(shop, ["b"]);
    expect(["unknown", "unreachable"]).toContain(gone);
    // There is an exchange again, without a binding until a member comes back.
    await until(async () => (await publishIds(shop, ["c"]))[0] === "rejected", "the exchange");
    await early.close();
    const late = await Member.of(shop);
    expect(await publishIds(shop, ["d"])).toEqual(["published"]);
    await late.got(1);
    expect(late.ids).toEqual(["d"]);
  });

  test("P-05: while the broker is out of memory nothing is sent, and afterwards everything works", async () => {
    const shop = transport({ confirmTimeout: "1s" });
    const member = await Member.of(shop);
    await publishIds(shop, ["before"]);
    await server().ctl("set_vm_memory_high_watermark", "0.0000001");
    try {
      const isBlocked = async (): Promise<boolean> =>
        (await publishIds(shop, ["during"]))[0] === "unreachable";
      await until(isBlocked, "the alarm");
      const before = process.memoryUsage().rss;
      const data = JSON.stringify("x".repeat(100_000));
      for (let n = 0; n < 20; n++) {
        const kinds = await publishIds(
          shop,
          Array.from({ length: 100 }, (_, m) => `b${n}-${m}`),
          { data },
        );
        expect(new Set(kinds)).toEqual(new Set(["unreachable"]));
      }
      expect(process.memoryUsage().rss - before).toBeLessThan(200 * 1_048_576);
      expect(member.consumption?.health()).toEqual({ ok: true });
    } finally {
      await server().ctl("set_vm_memory_high_watermark", "absolute", "1GB");
    }
    await until(async () => (await publishIds(shop, ["after"]))[0] === "published", "the end of the alarm");
    await until(() => member.ids.includes("after"), "what was sent afterwards");
    expect(member.ids.some((id) => id.startsWith("b1"))).toBe(false);
  });

  test("giving up ends the wait: what was not sent is unreachable, what was is unknown", async () => {
    const shop = transport();
    await Member.of(shop);
    await publishIds(shop, ["warm"]);
    const giveUp = new AbortController();
    const publishing = shop.publish([aMessage(), aMessage()], { signal: giveUp.signal });
    giveUp.abort();
    for (const { kind } of await publishing) expect(["published", "unknown", "unreachable"]).toContain(kind);
    const late = await shop.publish([aMessage()], { signal: AbortSignal.abort() });
    expect(late).toMatchObject([{ kind: "unreachable" }]);
  });

  test("A16: depths are reported for watched groups of other processes", async () => {
    const prefix = ownPrefix();
    const reader = transport({ prefix });
    const member = await Member.of(reader);
    await member.close();
    const watch = [{ service: "reader", group: "group", topics: ["events.order.placed"] }];
    const shop = transport({
      prefix,
      watch: [...watch, { service: "no", group: "body", topics: ["events.x"] }],
    });
    await shop.open();
    await publishIds(shop, ["a", "b", "c"]);
    const depths = await shop.depths(["events.order.placed", "events.x", "events.y"]);
    expect(depths).toEqual(new Map([["events.order.placed", 3]]));
    await Member.of(reader, { topics: [topic()] });
  });

  test("a group's lag counts what its queues hold; the age, a stream and a missing queue are unknown", async () => {
    const prefix = ownPrefix();
    const shop = transport({ prefix, partitions: 2 });
    await (await Member.of(shop)).close();
    await publishIds(shop, ["a", "b", "c"]);
    const first = { topic: "events.order.placed", kind: "event" } as const;
    const lags = (...more: readonly { readonly topic: string; readonly kind: "event" | "stream" }[]) =>
      shop.lags([{ service: "reader", group: "group", ordered: true, topics: [first, ...more] }]);
    const counted = { group: "group", topic: "events.order.placed", waiting: 3, oldestAgeSeconds: "unknown" };
    await expect.poll(() => lags()).toEqual([counted]);
    expect(await lags({ topic: "events.x", kind: "event" })).toEqual([{ ...counted, topic: null }]);
    expect(await lags({ topic: "clicks", kind: "stream" })).toEqual([
      { group: "group", topic: "clicks", waiting: "unknown", oldestAgeSeconds: "unknown" },
      counted,
    ]);
    await directly((channel) => channel.deleteQueue(`${prefix}.queue.reader.group:0`));
    expect(await lags()).toEqual([{ ...counted, waiting: "unknown" }]);
  });

  test("A16: a missing queue reports no depth, and the others of its group still count", async () => {
    const prefix = ownPrefix();
    const watch = [{ service: "reader", group: "group", topics: ["events.order.placed"] }];
    const shop = transport({ prefix, partitions: 2, watch });
    const depth = async (): Promise<number | undefined> =>
      (await shop.depths(["events.order.placed"])).get("events.order.placed");
    await (await Member.of(shop)).close();
    expect(await depth()).toBe(0);
    await publish(shop, ...["a", "b", "c", "d", "e", "f"].map((key) => aMessage({ key, id: key })));
    expect(await depth()).toBe(6);
    const remove = (n: number) =>
      directly((channel) => channel.deleteQueue(`${prefix}.queue.reader.group:${n}`));
    const { messageCount } = await remove(0);
    expect(await depth()).toBe(6 - messageCount);
    await remove(1);
    expect(await depth()).toBeUndefined();
  });
});
