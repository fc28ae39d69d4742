import { expect, test } from "vitest";
import { outgoing, relays, until } from "../../test/support/relays.ts";
import { ScriptedTransport } from "../../test/support/scripted-transport.ts";
import { silentObserver } from "../telemetry/index.ts";
import { Destinations } from "./destinations.ts";

const quick = { failures: 2, cooldown: 100, maxCooldown: 200 } as const;

const many = (count: number, topic: string, keys = 200) =>
  Array.from({ length: count }, (_, n) =>
    outgoing({ id: `${topic}-${n}`, topic, key: `${topic}-${n % keys}` }),
  );

test("A17, R-03: with one broker down its 5,000 messages keep their attempts and others are sent; after recovery all arrive in order", async () => {
  const harness = await relays();
  let down = true;
  harness.transport.answer = ({ topic }) => (down && topic === "down" ? "unreachable" : "published");
  await harness.publish(...many(5_000, "down"));
  await harness.relay({ breaker: quick }).start();
  await harness.observer.until("breaker.opened", 3);
  await harness.publish(...many(3_000, "up"));
  await until(() => harness.transport.published.length === 3_000);
  // The last ones may not be settled yet.
  await expect
    .poll(() => harness.rows("select count(*)::int as n, max(attempts)::int as attempts from sagabox.outbox"))
    .toEqual([{ n: 5_000, attempts: 0 }]);
  expect(harness.observer.of("relay.failed")).toEqual([]);
  down = false;
  await harness.drained();
  await harness.observer.until("breaker.closed");
  const arrived = harness.transport.published.filter(({ topic }) => topic === "down");
  expect(new Set(arrived.map(({ id }) => id)).size).toBe(5_000);
  expect(arrived).toHaveLength(5_000);
  for (let key = 0; key < 200; key++) {
    const numbers = arrived.filter((one) => one.key === `down-${key}`).map(({ id }) => Number(id.slice(5)));
    expect(numbers).toEqual(numbers.toSorted((a, b) => a - b));
  }
  expect(await harness.rows("select 1 from sagabox.dead_letter")).toEqual([]);
});

test("A17: an open breaker sends one message per probe and nothing else", async () => {
  const harness = await relays();
  harness.transport.answer = () => "unreachable";
  await harness.publish(...many(1_000, "down"));
  await harness.relay({ breaker: quick }).start();
  await harness.observer.until("breaker.opened");
  const before = harness.transport.calls.length;
  await harness.observer.until("breaker.opened", 5);
  const probes = harness.transport.calls.slice(before);
  expect(probes.length).toBeGreaterThanOrEqual(4);
  expect(probes.every((batch) => batch.length === 1)).toBe(true);
});

test("A17: a broker that never answers a probe does not delay other topics", async () => {
  const harness = await relays();
  harness.transport.before = (batch) =>
    batch.some(({ topic }) => topic === "hole") ? new Promise(() => undefined) : Promise.resolve();
  await harness.publish(...many(100, "hole"));
  await harness.relay({ breaker: { ...quick, failures: 1 }, publishTimeout: 300 }).start();
  await harness.observer.until("breaker.opened");
  await harness.observer.until("breaker.probing");
  await harness.publish(...many(2_000, "up"));
  await until(() => harness.transport.published.length === 2_000);
  expect(harness.observer.of("breaker.opened").every(({ reason }) => reason === "unknown")).toBe(true);
});

test.each([false, true])(
  "A17, E6: a message that fails every call does not keep its destination open (whole batch at once: %s)",
  async (failsLaterOfKey) => {
    const harness = await relays();
    const transport = new ScriptedTransport({ failsLaterOfKey });
    transport.before = async (batch) => {
      if (batch.some(({ id }) => id === "bad")) throw new Error("the connection was closed");
    };
    await harness.publish(outgoing({ id: "bad", topic: "t", key: "k", maxAttempts: 3 }));
    await harness.publish(outgoing({ id: "behind", topic: "t", key: "k" }), ...many(300, "t", 100));
    const retry = { firstDelay: 10, maxDelay: 20 };
    await harness.relay({ transport, breaker: quick, retry }).start();
    // Other messages keep coming: without them the message could not be distinguished from its broker.
    for (let n = 0; (await harness.waiting()) > 0; n++) {
      await harness.publish(outgoing({ id: `live-${n}`, topic: "t" }));
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    expect(new Set(transport.ids.filter((id) => !id.startsWith("live"))).size).toBe(301);
    expect(await harness.rows("select message_id, reason, attempts from sagabox.dead_letter")).toEqual([
      { message_id: "bad", reason: "exhausted", attempts: 3 },
    ]);
    for (let key = 0; key < 100; key++) {
      const ofKey = transport.published.filter((one) => one.key === `t-${key}`).map(({ id }) => id);
      expect([...new Set(ofKey)]).toEqual(ofKey.toSorted((a, b) => Number(a.slice(2)) - Number(b.slice(2))));
    }
  },
);

test("A17: such a message is also found while others are answered and no breaker opens", async () => {
  const harness = await relays();
  harness.transport.before = async (batch) => {
    if (batch.some(({ id }) => id === "bad")) throw new Error("the connection was closed");
  };
  const destinations = new Destinations({
    breaker: { failures: 100, cooldownMs: 100, maxCooldownMs: 200 },
    observer: harness.observer,
  });
  const { send } = harness.optimistic({ destinations });
  await harness.publish(outgoing({ id: "bad", topic: "t", maxAttempts: 2 }), ...many(50, "t"));
  await harness.relay({ destinations, retry: { firstDelay: 10, maxDelay: 20 } }).start();
  for (let n = 0; (await harness.waiting()) > 0; n++) {
    await send(outgoing({ id: `live-${n}`, topic: "t" }));
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  expect(harness.transport.ids.filter((id) => id.startsWith("t-"))).toHaveLength(50);
  expect(await harness.rows("select message_id from sagabox.dead_letter")).toEqual([{ message_id: "bad" }]);
  expect(harness.observer.of("breaker.opened")).toEqual([]);
});

test("A17, E6: a message that breaks the connection does not dead-letter messages that share it", async () => {
  const harness = await relays();
  const { transport } = harness;
  const onConnection = new Set<(error: Error) => void>();
  // All but the live messages are slow, so that they share the connection with the bad one if they can.
  transport.before = (batch) =>
    new Promise((resolve, reject) => {
      onConnection.add(reject);
      const isBad = batch.some(({ id }) => id === "bad");
      const end = (): void => {
        if (isBad) for (const fail of onConnection) fail(new Error("the connection was closed"));
        onConnection.delete(reject);
        resolve();
      };
      if (batch.every(({ id }) => id.startsWith("live"))) end();
      else setTimeout(end, isBad ? 10 : 40);
    });
  await harness.publish(outgoing({ id: "bad", topic: "t", maxAttempts: 6 }));
  await harness.publish(
    ...Array.from({ length: 6 }, (_, n) => outgoing({ id: `t-${n}`, topic: "t", maxAttempts: 1 })),
  );
  await harness.relay({ breaker: quick, retry: { firstDelay: 10, maxDelay: 20 } }).start();
  for (let n = 0; (await harness.waiting()) > 0; n++) {
    await harness.publish(outgoing({ id: `live-${n}`, topic: "t" }));
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  expect(await harness.rows("select message_id, attempts from sagabox.dead_letter")).toEqual([
    { message_id: "bad", attempts: 6 },
  ]);
  expect(new Set(transport.ids.filter((id) => id.startsWith("t-"))).size).toBe(6);
});

test("A17: for an open destination the optimistic sender leases and sends nothing; the relay delivers", async () => {
  const harness = await relays();
  const destinations = new Destinations({
    breaker: { failures: 1, cooldownMs: 60_000, maxCooldownMs: 60_000 },
    observer: silentObserver,
  });
  const { send } = harness.optimistic({ destinations });
  harness.transport.answer = ({ topic }) => (topic === "down" ? "unreachable" : "published");
  await send(outgoing({ id: "first", topic: "down" }));
  await harness.observer.until("optimistic.failed");
  const calls = harness.transport.calls.length;
  await send(outgoing({ id: "second", topic: "down" }));
  expect(await harness.rows("select attempts, lease_until from sagabox.outbox")).toEqual([
    { attempts: 0, lease_until: null },
    { attempts: 0, lease_until: null },
  ]);
  expect(harness.transport.calls).toHaveLength(calls);
  await send(outgoing({ id: "third", topic: "up" }));
  await harness.observer.until("optimistic.succeeded");
  harness.transport.answer = () => "published";
  await harness.relay().start();
  await harness.drained();
  expect(harness.transport.ids.toSorted()).toEqual(["first", "second", "third"]);
});

test("A17: messages already leased when their destination opens are released in order, without losing attempts", async () => {
  const harness = await relays();
  const destinations = new Destinations({
    breaker: { failures: 1, cooldownMs: 1_500, maxCooldownMs: 1_500 },
    observer: harness.observer,
  });
  const { send } = harness.optimistic({ destinations });
  let letGo: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (letGo = resolve));
  harness.transport.before = () => held;
  harness.transport.answer = () => "unreachable";
  await send(outgoing({ id: "a", topic: "t", key: "k" }));
  await until(() => harness.transport.calls.length === 1);
  await send(
    outgoing({ id: "b", topic: "t", key: "other" }),
    outgoing({ id: "c", topic: "t", key: "other" }),
  );
  letGo();
  await harness.observer.until("optimistic.failed", 2);
  expect(harness.observer.of("optimistic.failed").map(({ reason }) => reason)).toEqual(["error", "resting"]);
  harness.transport.answer = () => "published";
  await harness.relay({ destinations }).start();
  await harness.drained();
  expect(harness.transport.ids.filter((id) => id !== "a")).toEqual(["b", "c"]);
});

test("A17: a process without a relay notices that the broker is back", async () => {
  const harness = await relays();
  const destinations = new Destinations({
    breaker: { failures: 1, cooldownMs: 20, maxCooldownMs: 20 },
    observer: harness.observer,
  });
  const { send } = harness.optimistic({ destinations });
  harness.transport.answer = () => "unreachable";
  await send(outgoing({ topic: "t" }));
  await harness.observer.until("breaker.opened");
  harness.transport.answer = () => "published";
  await until(() => destinations.accepts("t"));
  await send(outgoing({ id: "probe", topic: "t" }));
  await harness.observer.until("breaker.closed");
  expect(harness.transport.ids).toEqual(["probe"]);
});
