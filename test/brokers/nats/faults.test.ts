import { describe, expect, onTestFinished, test } from "vitest";
import type { PublishOutcome } from "../../../src/transport/index.ts";
import { aMessage } from "../../support/messages.ts";
import {
  eventually,
  ids,
  member,
  missing,
  newPrefix,
  openTransport,
  ownServer,
  publish,
  sharedUrl,
  createTransport,
} from "./harness.ts";
import { Wire } from "../../support/wire.ts";

const kinds = (outcomes: readonly PublishOutcome[]): string[] => outcomes.map(({ kind }) => kind);

async function wire() {
  const made = await Wire.to(sharedUrl);
  onTestFinished(() => made.close());
  return made;
}

describe.skipIf(missing)("faults of NATS", () => {
  test("B10: killed with publishes outstanding, it leaves no answer open; afterwards all arrive", async () => {
    const server = await ownServer();
    const transport = await openTransport({ servers: server.url, timeout: 2_000, lease: 2_000 });
    const reader = await member(transport, { topic: "t", receive: (delivery) => delivery.ack() });
    const batch = Array.from({ length: 2_000 }, (_, n) =>
      aMessage({ topic: "t", id: `m${n}`, data: JSON.stringify("x".repeat(2_000)) }),
    );
    const sending = publish(transport, ...batch);
    await reader.until(1);
    await server.kill();
    const outcomes = await sending;
    const left = batch.filter((_, n) => outcomes[n]?.kind !== "published");
    for (const { kind } of outcomes) expect(["published", "unknown", "unreachable"]).toContain(kind);
    expect(left.length).toBeGreaterThan(0);
    await eventually(
      async () => kinds(await publish(transport, aMessage({ topic: "t" })))[0] === "unreachable",
    );
    await server.start();
    await eventually(
      async () => kinds(await publish(transport, aMessage({ topic: "t", id: "again" })))[0] === "published",
    );
    expect(new Set(kinds(await publish(transport, ...left)))).toEqual(new Set(["published"]));
    await eventually(() => {
      const seen = new Set(ids(reader.received));
      return batch.every(({ id }) => seen.has(id));
    });
  });

  test("B4: killed with work unsettled and started again, it delivers that first, in order", async () => {
    const server = await ownServer();
    const transport = await openTransport({ servers: server.url, timeout: 2_000, lease: 2_000 });
    const reader = await member(transport, { topic: "t", prefetch: 3 });
    const batch = Array.from({ length: 6 }, (_, n) => aMessage({ topic: "t", key: "k", id: `m${n}` }));
    for (const message of batch) await publish(transport, message);
    const held = await reader.until(3);
    await held[0]?.ack();
    await reader.until(4);
    await server.kill();
    await eventually(() => reader.received.slice(1).every(({ signal }) => signal.aborted));
    expect(reader.consumption.health().ok).toBe(false);
    for (const delivery of held) await delivery.ack(); // too late, and harmless
    const before = reader.received.length;
    await server.start();
    const again = [];
    for (let n = 0; again.at(-1)?.message.id !== "m5"; n++) {
      const next = (await reader.until(before + n + 1))[before + n];
      if (next !== undefined) again.push(next);
      await next?.ack();
    }
    const order = ids(again).filter((id, n, all) => all.indexOf(id) === n);
    expect(order.slice(-5)).toEqual(["m1", "m2", "m3", "m4", "m5"]);
    expect(again.every(({ attempt }) => attempt === 1)).toBe(true);
    await eventually(() => reader.consumption.health().ok);
  });

  test("B4: down at the start, it fails the first try and is found when it comes", async () => {
    const server = await ownServer();
    await server.kill();
    const transport = createTransport({ servers: server.url, timeout: 1_000 });
    await expect(transport.open()).rejects.toMatchObject({ code: "TRANSPORT_UNREACHABLE" });
    await expect(member(transport, { topic: "t" })).rejects.toMatchObject({ code: "TRANSPORT_UNREACHABLE" });
    expect(kinds(await publish(transport, aMessage({ topic: "t" })))).toEqual(["unreachable"]);
    await server.start();
    await eventually(() =>
      transport.open().then(
        () => true,
        () => false,
      ),
    );
    const reader = await member(transport, { topic: "t", receive: (delivery) => delivery.ack() });
    expect(kinds(await publish(transport, aMessage({ topic: "t" })))).toEqual(["published"]);
    await reader.until(1);
  });

  test("B4: a connection that is cut is made again, by publisher and consumer, and retries continue", async () => {
    const line = await wire();
    const transport = await openTransport({ servers: line.url, prefix: newPrefix(), lease: 2_000 });
    const reader = await member(transport, { topic: "t", prefetch: 1 });
    await publish(
      transport,
      aMessage({ topic: "t", key: "k", id: "a" }),
      aMessage({ topic: "t", key: "k", id: "b" }),
    );
    const [first] = await reader.until(1);
    line.cut();
    await eventually(() => first?.signal.aborted === true);
    await first?.retry({ delayMs: 0, countsAsAttempt: true, error: "too late" });
    const again = await reader.until(2);
    expect(ids(again)).toEqual(["a", "a"]);
    expect(again[1]?.attempt).toBe(1);
    await again[1]?.retry({ delayMs: 10, countsAsAttempt: true, error: "as the test asked" });
    await (await reader.until(3))[2]?.ack();
    await (await reader.until(4))[3]?.ack();
    expect(ids(reader.received).toSorted()).toEqual(["a", "a", "a", "b"]);
    expect(kinds(await publish(transport, aMessage({ topic: "t" })))).toEqual(["published"]);
  });

  test("P-07: in a black hole a publish ends within its time, the dead connection is noticed, and publishing continues", async () => {
    const line = await wire();
    const transport = await openTransport({
      servers: line.url,
      prefix: newPrefix(),
      lease: 2_000,
      timeout: 1_000,
    });
    const reader = await member(transport, { topic: "t", receive: (delivery) => delivery.ack() });
    line.swallow();
    const began = performance.now();
    const outcomes = await publish(transport, aMessage({ topic: "t", id: "x" }));
    expect(performance.now() - began).toBeLessThan(5_000);
    expect(kinds(outcomes)).toEqual(["unknown"]);
    await eventually(() => !reader.consumption.health().ok);
    line.heal();
    await eventually(
      async () => kinds(await publish(transport, aMessage({ topic: "t", id: "x" })))[0] === "published",
    );
    await reader.until(1);
    await eventually(() => reader.consumption.health().ok);
  });

  test("B10: a sender that gives up gets its answer at once: unknown", async () => {
    const line = await wire();
    const transport = await openTransport({
      servers: line.url,
      prefix: newPrefix(),
      timeout: 60_000,
      lease: 60_000,
    });
    line.swallow();
    const giveUp = new AbortController();
    const sending = transport.publish([aMessage(), aMessage()], { signal: giveUp.signal });
    giveUp.abort();
    expect(kinds(await sending)).toEqual(["unknown", "unknown"]);
    expect(kinds(await transport.publish([aMessage()], { signal: giveUp.signal }))).toEqual(["unreachable"]);
    line.cut();
  });

  test("P-02: nothing that was handed out is settled twice when the answer to a copy is lost", async () => {
    const line = await wire();
    const transport = await openTransport({
      servers: line.url,
      prefix: newPrefix(),
      lease: 2_000,
      timeout: 500,
    });
    const reader = await member(transport, { topic: "t" });
    await publish(transport, aMessage({ topic: "t", id: "a" }));
    const [delivery] = await reader.until(1);
    line.swallow();
    await expect(
      delivery?.retry({ delayMs: 0, countsAsAttempt: true, error: "as the test asked" }),
    ).rejects.toMatchObject({
      code: "TRANSPORT_UNREACHABLE",
    });
    line.heal();
    line.cut();
    const [, again] = await reader.until(2);
    expect(again?.attempt).toBe(1);
    await again?.ack();
  });
});
