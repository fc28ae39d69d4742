import { afterEach, describe, expect, test } from "vitest";
import type { Delivery } from "sagabox/transport";
import { aMessage } from "../../support/messages.ts";
import { closeAll, directly, missing, ownPrefix, putBytes, transport } from "./broker.ts";
import { Member, publish, publishIds, topic, until } from "./member.ts";

afterEach(closeAll);

const note = {
  error_type: "CardDeclined",
  error_message: "no",
  stack_trace: "at …",
  retry_count: "4",
  failed_at: "2026-01-02T03:04:05.678Z",
  source_topic: "events.order.placed",
  consumer_group: "group",
  original_timestamp: "2026-01-02T03:04:05.678901Z",
};

const keep = (): undefined => undefined;

describe.skipIf(missing !== undefined)("consuming from RabbitMQ", () => {
  test("E3: a dead letter is kept in the group's own queue, its body unchanged and the note in its headers", async () => {
    const prefix = ownPrefix();
    const shop = transport({ prefix });
    const member = await Member.of(shop, { receive: keep });
    const message = aMessage({ headers: { "x-tenant": "acme" } });
    await publish(shop, message);
    const [delivery] = await member.got(1);
    await delivery?.deadLetter?.(note);
    await directly(async (channel) => {
      const got = await channel.get(`${prefix}.dlq.reader.group`, { noAck: true });
      if (got === false) throw new Error("nothing came");
      expect(got.properties.headers).toMatchObject({ ...note, "x-tenant": "acme", message_id: message.id });
      expect(JSON.parse(got.content.toString())).toMatchObject({ metadata: { message_id: message.id } });
    });
    await member.close();
    expect((await shop.depths(["events.order.placed"])).size).toBe(0);
  });

  test("a group that rejoins continues where it stopped, also through a retry that it did not wait for", async () => {
    const shop = transport();
    const once = await Member.of(shop, { receive: keep });
    await publishIds(shop, ["a"]);
    await (await once.got(1))[0]?.retry({ delayMs: 100, countsAsAttempt: true, error: "later" });
    await once.close();
    await publishIds(shop, ["b"]);
    const again = await Member.of(shop);
    await again.got(2);
    expect(again.ids.toSorted()).toEqual(["a", "b"]);
    expect(again.received.find(({ message }) => message.id === "a")?.attempt).toBe(2);
  });

  test("B7: members that come later get their share of the partitions, and no key loses its order", async () => {
    const prefix = ownPrefix();
    const options = { prefix, rebalanceInterval: "100ms" } as const;
    const all: string[] = [];
    const by = new Map<Member, number>();
    const join = async (): Promise<Member> => {
      const member: Member = await Member.of(transport(options), {
        receive: (delivery) => {
          all.push(delivery.message.id);
          by.set(member, (by.get(member) ?? 0) + 1);
          return delivery.ack();
        },
      });
      return member;
    };
    const publisher = transport(options);
    await publisher.open();
    const members = [await join()];
    members.push(await join(), await join());
    let round = 0;
    const fair = (): boolean => members.every((member) => (by.get(member) ?? 0) >= 40);
    await until(async () => {
      const batch = Array.from({ length: 24 }, (_, n) => aMessage({ id: `k${n}-${round}`, key: `k${n}` }));
      expect(new Set((await publish(publisher, ...batch)).map(({ kind }) => kind))).toEqual(
        new Set(["published"]),
      );
      round += 1;
      return fair();
    }, "a share for every member");
    await until(() => all.length >= round * 24, "everything");
    expect(all.length).toBe(round * 24);
    for (let n = 0; n < 24; n++) {
      const rounds = all.filter((id) => id.startsWith(`k${n}-`)).map((id) => Number(id.split("-")[1]));
      expect(rounds).toEqual(Array.from({ length: round }, (_, m) => m));
    }
  });

  test("two groups may split the same topic into different numbers of partitions", async () => {
    const prefix = ownPrefix();
    const two = await Member.of(transport({ prefix, partitions: 2 }), { group: "two" });
    const many = await Member.of(transport({ prefix, partitions: 64 }), { group: "many" });
    const shop = transport({ prefix });
    await shop.open();
    const ids = Array.from({ length: 30 }, (_, n) => `m${n}`);
    await publishIds(shop, ids);
    for (const member of [two, many]) {
      await member.got(30);
      expect(member.ids.toSorted()).toEqual(ids.toSorted());
    }
  });

  test.each([
    ["number of partitions", { partitions: 4 }, true],
    ["kind of queue", { queues: "classic" }, true],
    ["order", {}, false],
  ] as const)(
    "R-11: a group whose %s was changed gets an error instead of losing messages",
    async (_, change, ordered) => {
      const prefix = ownPrefix();
      await Member.of(transport({ prefix }));
      await expect(Member.of(transport({ prefix, ...change }), { ordered })).rejects.toMatchObject({
        code: "OPTIONS_INVALID",
        message: expect.stringContaining('group "group"') as string,
      });
    },
  );

  test("B6: commands reach their service, broadcasts reach every member, and all topics of a group share its queues", async () => {
    const broadcasts = ["events.config.changed"];
    const shop = transport({ broadcasts });
    const topics = [
      topic({ topic: "commands.stock.reserve", kind: "command", from: "unclaimed" }),
      topic({ topic: "events.config.changed" }),
    ];
    const stock = await Member.of(shop, { service: "stock", topics });
    const other = await Member.of(shop, { service: "other", topics: topics.slice(1) });
    await publish(
      shop,
      aMessage({ id: "reserve", topic: "commands.stock.reserve", kind: "command", target: "stock" }),
      aMessage({ id: "changed", topic: "events.config.changed" }),
    );
    await stock.got(2);
    await other.got(1);
    expect(stock.ids.toSorted()).toEqual(["changed", "reserve"]);
    expect(other.ids).toEqual(["changed"]);
  });

  test("B3, A13: a classic queue of an unordered group gives the urgent ones first, on ten levels", async () => {
    const shop = transport({ queues: "classic" });
    const member = await Member.of(shop, { ordered: false, prefetch: 1, receive: keep });
    await publishIds(shop, ["first"]);
    await member.got(1);
    for (const priority of [3, 0, 9, 5, 8, 1, 7, 2, 6, 4])
      await publishIds(shop, [`p${priority}`], { priority });
    for (let n = 1; n <= 11; n++) await (await member.got(n))[n - 1]?.ack();
    expect(member.ids).toEqual(["first", "p9", "p8", "p7", "p6", "p5", "p4", "p3", "p2", "p1", "p0"]);
  });

  test("a group without order has one queue, no order keys, and runs everything at once", async () => {
    const shop = transport();
    const member = await Member.of(shop, { ordered: false, receive: keep });
    await publishIds(shop, ["a", "b", "c"], { key: "k" });
    await member.got(3);
    expect(member.received.map(({ orderKey }) => orderKey)).toEqual([null, null, null]);
    expect(member.ids).toEqual(["a", "b", "c"]);
  });

  test("E1, D7: what others publish comes with its flaw, keeps its id through a retry, and can be buried", async () => {
    const prefix = ownPrefix();
    const shop = transport({ prefix });
    const member = await Member.of(shop, { receive: keep });
    await putBytes(`${prefix}.event.order`, "legacy.order.placed.info", Buffer.from("not JSON"));
    const [first] = await member.got(1);
    expect(first).toMatchObject({ flaw: { code: "ENVELOPE_INVALID" }, orderKey: null });
    expect(first?.message).toMatchObject({ topic: "events.order.placed", data: '"not JSON"' });
    await first?.retry({ delayMs: 100, countsAsAttempt: true, error: "unreadable" });
    const [, second] = await member.got(2);
    expect(second?.message.id).toBe(first?.message.id);
    expect(second?.attempt).toBe(2);
    await second?.deadLetter?.(note);
    await directly(async (channel) => {
      const got = await channel.get(`${prefix}.dlq.reader.group`, { noAck: true });
      expect(got === false ? "" : got.content.toString()).toBe("not JSON");
    });
  });

  test("R-11: a message that is given back again and again never reaches the broker's limit", async () => {
    const shop = transport({ deliveryLimit: 20 });
    let count = 0;
    const member = await Member.of(shop, {
      receive: (delivery: Delivery) => (++count < 60 ? delivery.release() : delivery.ack()),
    });
    await publishIds(shop, ["tossed"]);
    await member.got(60);
    expect(new Set(member.ids)).toEqual(new Set(["tossed"]));
    await member.close();
  });

  test("R-11: a message whose reader always dies uses up attempts long before the broker would dead-letter it", async () => {
    const shop = transport({ deliveryLimit: 20, partitions: 1 });
    const attempts: number[] = [];
    for (let n = 0; n < 13; n++) {
      const member = await Member.of(shop, { receive: keep });
      if (n === 0) await publishIds(shop, ["deadly"]);
      attempts.push((await member.got(1))[0]?.attempt ?? 0);
      await member.close();
    }
    expect(attempts).toEqual([...Array<number>(11).fill(1), 2, 3]);
  });
});
