import { describe, expect, test } from "vitest";
import type { Delivery } from "../../../src/transport/index.ts";
import { KafkaTransport } from "../../../src/transports/kafka/index.ts";
import { kafkaSettings } from "../../../src/transports/kafka/options.ts";
import { WireDriver } from "../../../src/transports/kafka/wire-driver.ts";
import { SilencedDriver } from "./drivers.ts";
import { aMessage } from "../../support/messages.ts";
import {
  ackAll,
  eventually,
  Member,
  missing,
  newPrefix,
  publish,
  sharedUrl,
  createTransport,
} from "./harness.ts";

const wait = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

describe.skipIf(missing)("members that come and go", () => {
  test("I-08c: while members join and leave, nothing is lost, nothing comes twice, and every key keeps its order", async () => {
    const prefix = newPrefix();
    const sender = createTransport({ prefix, topics: { partitions: 8 } });
    const running = new Set<string>();
    const handled: string[] = [];
    const overlaps: string[] = [];
    const lost: string[] = [];
    // One key in series, as the inbox does it.
    const tails = new Map<string, Promise<void>>();
    const receive = (delivery: Delivery): void => {
      const key = delivery.orderKey ?? "";
      const before = tails.get(key) ?? Promise.resolve();
      tails.set(
        key,
        before.then(async () => {
          const { id } = delivery.message;
          if (delivery.signal.aborted) return void lost.push(id);
          if (running.has(key)) overlaps.push(id);
          running.add(key);
          handled.push(id);
          await wait(2 + (handled.length % 5));
          running.delete(key);
          await delivery.ack();
        }),
      );
    };
    const join = (): Promise<Member> =>
      Member.of(createTransport({ prefix, topics: { partitions: 8 } }), { prefetch: 20, receive });
    const members = [await join(), await join()];
    const sending = (async () => {
      for (let n = 0; n < 120; n++) {
        const batch = Array.from({ length: 20 }, (_, key) =>
          aMessage({ id: `${key}-${n}`, key: `key-${key}` }),
        );
        await publish(sender, ...batch);
        await wait(40);
      }
    })();
    for (let turn = 0; turn < 5; turn++) {
      members.push(await join());
      await wait(700);
      const leaving = members.shift();
      await leaving?.consumption?.pause();
      // What a stopping worker does: it finishes what it holds.
      await Promise.all(tails.values());
      await leaving?.consumption?.close();
    }
    await sending;
    await eventually(() => new Set(handled).size === 2_400, 40_000);
    await Promise.all(tails.values());
    expect(lost).toEqual([]);
    expect(overlaps).toEqual([]);
    expect(handled.length).toBe(2_400);
    for (let key = 0; key < 20; key++) {
      const own = handled.filter((id) => id.startsWith(`${key}-`));
      expect(own).toEqual(Array.from({ length: 120 }, (_, n) => `${key}-${n}`));
    }
  });

  test("I-08c: what cannot be finished before its partition moves is aborted, and is redelivered to the new owner", async () => {
    const prefix = newPrefix();
    const settings = { prefix, topics: { partitions: 2 }, handOver: 500 };
    const slow = await Member.of(createTransport(settings), { prefetch: 100 });
    const sender = createTransport(settings);
    const batch = Array.from({ length: 20 }, (_, n) => aMessage({ id: `m-${n}`, key: `key-${n}` }));
    await publish(sender, ...batch);
    await slow.got(20);
    const quick = await Member.of(createTransport(settings), { receive: ackAll });
    await eventually(() => slow.received.some(({ signal }) => signal.aborted));
    const moved = slow.received.filter(({ signal }) => signal.aborted).map(({ message }) => message.id);
    await quick.got(moved.length);
    expect(quick.ids.toSorted()).toEqual(moved.toSorted());
    // Too late: it belongs to another one now.
    for (const delivery of slow.received) if (delivery.signal.aborted) await delivery.ack();
    for (const delivery of slow.received) if (!delivery.signal.aborted) await delivery.ack();
    await wait(300);
    expect(slow.received.length).toBe(20);
  });

  test("I-10c: settled in any order, a dead member leaves behind everything that was not done, and nothing is lost", async () => {
    const prefix = newPrefix();
    const settings = kafkaSettings({
      brokers: [sharedUrl],
      prefix,
      topics: { partitions: 1 },
      sessionTimeout: "6s",
      warn: () => undefined,
    });
    const driver = new SilencedDriver(new WireDriver(settings));
    const doomed = new KafkaTransport(settings, driver);
    const member = await Member.of(doomed, { prefetch: 30 });
    const batch = Array.from({ length: 30 }, (_, n) => aMessage({ id: `m-${n}`, key: "k" }));
    await publish(doomed, ...batch);
    const received = await member.got(30);
    for (const n of [29, 3, 0, 17, 1, 2, 5, 4]) await received[n]?.ack();
    await wait(500);
    driver.silence();
    const heir = await Member.of(createTransport({ prefix }), { receive: ackAll, prefetch: 50 });
    await heir.until(() => heir.ids.includes("m-29"));
    // 0 to 5 were committed; 17 and 29 were done behind an open record, so they are redelivered.
    expect(heir.ids).toEqual(Array.from({ length: 24 }, (_, n) => `m-${n + 6}`));
    await eventually(() => received[10]?.signal.aborted === true);
    await doomed.close();
  });

  test("O-05: a member that was silent for too long settles nothing any more", async () => {
    const prefix = newPrefix();
    const options = { brokers: [sharedUrl], prefix, topics: { partitions: 1 }, warn: () => undefined };
    const settings = kafkaSettings({ ...options, sessionTimeout: "2s" });
    const driver = new SilencedDriver(new WireDriver(settings));
    const stopped = new KafkaTransport(settings, driver);
    const member = await Member.of(stopped, { prefetch: 5 });
    await publish(stopped, aMessage({ id: "m-1", key: "k" }));
    const [held] = await member.got(1);
    driver.silence();
    await eventually(() => held?.signal.aborted === true, 10_000);
    await held?.ack();
    expect(member.consumption?.health().ok).toBe(false);
    const heir = await Member.of(createTransport({ prefix }), { receive: ackAll });
    await heir.got(1);
    expect(heir.ids).toEqual(["m-1"]);
    await stopped.close();
  });
});
