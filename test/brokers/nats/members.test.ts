import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { describe, expect, onTestFinished, test } from "vitest";
import type { Delivery } from "../../../src/transport/index.ts";
import { aMessage } from "../../support/messages.ts";
import { eventually, member, missing, newPrefix, openTransport, publish, sharedUrl } from "./harness.ts";
import { Wire } from "../../support/wire.ts";

async function listConsumers(prefix: string) {
  const nc = await connect({ servers: sharedUrl.replace("nats://", "") });
  onTestFinished(() => nc.close());
  const jsm = await jetstreamManager(nc);
  return async (): Promise<string[]> => {
    const names: string[] = [];
    for await (const { name } of jsm.consumers.list(`${prefix}_messages`)) names.push(name);
    return names;
  };
}

/** Remembers who handled what, in the order it was handled, and acknowledges a little later. */
function handler(log: { id: string; by: string }[], by: string) {
  return (delivery: Delivery): void => {
    setTimeout(() => {
      if (delivery.signal.aborted) return;
      log.push({ id: delivery.message.id, by });
      void delivery.ack();
    }, Math.random() * 3);
  };
}

describe.skipIf(missing)("members of a group on JetStream", () => {
  test("B7: members come and go under load: nothing is lost, nothing twice, each key in order", async () => {
    const prefix = newPrefix();
    const names = await listConsumers(prefix);
    const publisher = await openTransport({ servers: sharedUrl, prefix, lease: 20_000 });
    const log: { id: string; by: string }[] = [];
    const join = async (by: string) => {
      const transport = await openTransport({ servers: sharedUrl, prefix, lease: 20_000 });
      // One at a time for each key, as the inbox does it: a prefetch of one for this test.
      return member(transport, { topic: "t", prefetch: 1, receive: handler(log, by) });
    };
    const first = await join("first");
    const keys = Array.from({ length: 16 }, (_, n) => `k${n}`);
    const rounds = 30;
    const sending = (async () => {
      for (let round = 0; round < rounds; round++) {
        const batch = keys.map((key) => aMessage({ topic: "t", key, id: `${key}-${round}` }));
        await publish(publisher, ...batch);
      }
    })();
    await eventually(() => log.length > 40);
    const second = await join("second");
    await eventually(() => log.some(({ by }) => by === "second"));
    await first.consumption.close();
    const third = await join("third");
    await eventually(() => log.some(({ by }) => by === "third"));
    await second.consumption.close();
    await sending;
    await eventually(() => log.length >= keys.length * rounds);
    for (const key of keys) {
      const handled = log.flatMap(({ id }) => (id.startsWith(`${key}-`) ? [id] : []));
      expect(handled).toEqual(Array.from({ length: rounds }, (_, round) => `${key}-${round}`));
    }
    await third.consumption.close();
    await eventually(async () => (await names()).length === 8);
  });

  test("D6: a member that is cut off stops before another takes over, and its late answers are ignored", async () => {
    const prefix = newPrefix();
    const wire = await Wire.to(sharedUrl);
    onTestFinished(() => wire.close());
    const doomed = await openTransport({ servers: wire.url, prefix, lease: 1_500 });
    const heirs = await openTransport({ servers: sharedUrl, prefix, lease: 1_500 });
    const held = await member(doomed, { topic: "t", prefetch: 3 });
    await publish(heirs, ...[0, 1, 2, 3].map((n) => aMessage({ topic: "t", key: "k", id: `m${n}` })));
    const deliveries = await held.until(3);
    wire.swallow();
    const lostAt = Promise.all(
      deliveries.map(
        ({ signal }) =>
          new Promise<number>((resolve) => {
            signal.addEventListener("abort", () => resolve(performance.now()));
          }),
      ),
    );
    const heir = await member(heirs, { topic: "t", receive: (delivery) => delivery.ack() });
    await heir.until(4);
    const tookOverAt = performance.now();
    for (const at of await lostAt) expect(at).toBeLessThan(tookOverAt);
    expect(held.consumption.health().ok).toBe(false);
    for (const delivery of deliveries) await delivery.ack();
    await deliveries[0]?.retry({ delayMs: 0, countsAsAttempt: true, error: "too late" });
    wire.heal();
    await publish(heirs, aMessage({ topic: "t", key: "k", id: "m4" }));
    await eventually(() => [...heir.received, ...held.received].some(({ message }) => message.id === "m4"));
    expect(heir.received.slice(0, 4).map(({ message }) => message.id)).toEqual(["m0", "m1", "m2", "m3"]);
  });

  test("B7: more members than partitions stand by, and say so", async () => {
    const prefix = newPrefix();
    const transport = await openTransport({ servers: sharedUrl, prefix, partitions: 1 });
    const first = await member(transport, { topic: "t" });
    const second = await member(transport, { topic: "t" });
    const standing = [first, second].filter(({ consumption }) => consumption.health().detail !== undefined);
    expect(standing).toHaveLength(1);
    expect(standing[0]?.consumption.health()).toEqual({
      ok: true,
      detail: "standby: other members read all partitions",
    });
  });

  test("P-11: a stream that is deleted and made anew is read from its first message", async () => {
    const prefix = newPrefix();
    const transport = await openTransport({ servers: sharedUrl, prefix, lease: 1_000 });
    const reader = await member(transport, { topic: "t", receive: (delivery) => delivery.ack() });
    const batch = (name: string) =>
      Array.from({ length: 20 }, (_, n) => aMessage({ topic: "t", key: `k${n}`, id: `${name}${n}` }));
    await publish(transport, ...batch("old"));
    await reader.until(20);
    const nc = await connect({ servers: sharedUrl.replace("nats://", "") });
    onTestFinished(() => nc.close());
    await (await jetstreamManager(nc)).streams.delete(`${prefix}_messages`);
    await eventually(() => !reader.consumption.health().ok);
    const another = await openTransport({ servers: sharedUrl, prefix }); // which makes it again
    for (const outcome of await publish(another, ...batch("new"))) expect(outcome.kind).toBe("published");
    const all = await reader.until(20, ({ message }) => message.id.startsWith("new"));
    expect(all.map(({ message }) => message.id).toSorted()).toEqual(
      batch("new")
        .map(({ id }) => id)
        .toSorted(),
    );
    await eventually(() => reader.consumption.health().ok);
  });

  test("D6: a deleted consumer is created again, and its group continues", async () => {
    const prefix = newPrefix();
    const transport = await openTransport({ servers: sharedUrl, prefix, lease: 1_000 });
    const reader = await member(transport, { topic: "t", receive: (delivery) => delivery.ack() });
    await publish(transport, aMessage({ topic: "t", id: "before" }));
    await reader.until(1);
    const nc = await connect({ servers: sharedUrl.replace("nats://", "") });
    onTestFinished(() => nc.close());
    const jsm = await jetstreamManager(nc);
    for await (const { name } of jsm.consumers.list(`${prefix}_messages`)) {
      await jsm.consumers.delete(`${prefix}_messages`, name);
    }
    await publish(
      transport,
      ...Array.from({ length: 20 }, (_, n) => aMessage({ topic: "t", id: `after${n}` })),
    );
    await reader.until(20, ({ message }) => message.id.startsWith("after"));
    expect(reader.consumption.health()).toEqual({ ok: true });
  });
});
