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

test("A17, R-03: with one broker down its 5,000 messages wait uncharged while the others flow; back, all arrive in order", async () => {
  const house = await relays();
  let down = true;
  house.transport.answer = ({ topic }) => (down && topic === "down" ? "unreachable" : "published");
  await house.publish(...many(5_000, "down"));
  await house.relay({ breaker: quick }).start();
  await house.observer.until("breaker.opened", 3);
  await house.publish(...many(3_000, "up"));
  await until(() => house.transport.published.length === 3_000);
  // The last of them may still be on its way to being settled.
  await expect
    .poll(() => house.rows("select count(*)::int as n, max(attempts)::int as attempts from sagabox.outbox"))
    .toEqual([{ n: 5_000, attempts: 0 }]);
  expect(house.observer.of("relay.failed")).toEqual([]);
  down = false;
  await house.drained();
  await house.observer.until("breaker.closed");
  const arrived = house.transport.published.filter(({ topic }) => topic === "down");
  expect(new Set(arrived.map(({ id }) => id)).size).toBe(5_000);
  expect(arrived).toHaveLength(5_000);
  for (let key = 0; key < 200; key++) {
    const numbers = arrived.filter((one) => one.key === `down-${key}`).map(({ id }) => Number(id.slice(5)));
    expect(numbers).toEqual(numbers.toSorted((a, b) => a - b));
  }
  expect(await house.rows("select 1 from sagabox.dead_letter")).toEqual([]);
});

test("A17: while open the broker gets one message for each probe, and nothing else", async () => {
  const house = await relays();
  house.transport.answer = () => "unreachable";
  await house.publish(...many(1_000, "down"));
  await house.relay({ breaker: quick }).start();
  await house.observer.until("breaker.opened");
  const before = house.transport.calls.length;
  await house.observer.until("breaker.opened", 5);
  const probes = house.transport.calls.slice(before);
  expect(probes.length).toBeGreaterThanOrEqual(4);
  expect(probes.every((batch) => batch.length === 1)).toBe(true);
});

test("A17: a broker that never answers a probe keeps nobody waiting", async () => {
  const house = await relays();
  house.transport.before = (batch) =>
    batch.some(({ topic }) => topic === "hole") ? new Promise(() => undefined) : Promise.resolve();
  await house.publish(...many(100, "hole"));
  await house.relay({ breaker: { ...quick, failures: 1 }, publishTimeout: 300 }).start();
  await house.observer.until("breaker.opened");
  await house.observer.until("breaker.probing");
  await house.publish(...many(2_000, "up"));
  await until(() => house.transport.published.length === 2_000);
  expect(house.observer.of("breaker.opened").every(({ reason }) => reason === "unknown")).toBe(true);
});

test.each([false, true])(
  "A17, E6: one message that ends every call it travels in does not keep its destination open (a whole batch at once: %s)",
  async (failsLaterOfKey) => {
    const house = await relays();
    const transport = new ScriptedTransport({ failsLaterOfKey });
    transport.before = async (batch) => {
      if (batch.some(({ id }) => id === "bad")) throw new Error("the connection was closed");
    };
    await house.publish(outgoing({ id: "bad", topic: "t", key: "k", maxAttempts: 3 }));
    await house.publish(outgoing({ id: "behind", topic: "t", key: "k" }), ...many(300, "t", 100));
    const retry = { firstDelay: 10, maxDelay: 20 };
    await house.relay({ transport, breaker: quick, retry }).start();
    // Others go on coming: without them nobody could tell the message from its broker.
    for (let n = 0; (await house.waiting()) > 0; n++) {
      await house.publish(outgoing({ id: `live-${n}`, topic: "t" }));
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    expect(new Set(transport.ids.filter((id) => !id.startsWith("live"))).size).toBe(301);
    expect(await house.rows("select message_id, reason, attempts from sagabox.dead_letter")).toEqual([
      { message_id: "bad", reason: "exhausted", attempts: 3 },
    ]);
    for (let key = 0; key < 100; key++) {
      const ofKey = transport.published.filter((one) => one.key === `t-${key}`).map(({ id }) => id);
      expect([...new Set(ofKey)]).toEqual(ofKey.toSorted((a, b) => Number(a.slice(2)) - Number(b.slice(2))));
    }
  },
);

test("A17: such a message is found as well while others are answered all the time and nothing ever opens", async () => {
  const house = await relays();
  house.transport.before = async (batch) => {
    if (batch.some(({ id }) => id === "bad")) throw new Error("the connection was closed");
  };
  const destinations = new Destinations({
    breaker: { failures: 100, cooldownMs: 100, maxCooldownMs: 200 },
    observer: house.observer,
  });
  const { send } = house.optimistic({ destinations });
  await house.publish(outgoing({ id: "bad", topic: "t", maxAttempts: 2 }), ...many(50, "t"));
  await house.relay({ destinations, retry: { firstDelay: 10, maxDelay: 20 } }).start();
  for (let n = 0; (await house.waiting()) > 0; n++) {
    await send(outgoing({ id: `live-${n}`, topic: "t" }));
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  expect(house.transport.ids.filter((id) => id.startsWith("t-"))).toHaveLength(50);
  expect(await house.rows("select message_id from sagabox.dead_letter")).toEqual([{ message_id: "bad" }]);
  expect(house.observer.of("breaker.opened")).toEqual([]);
});

test("A17, E6: a message that ends the connection takes nobody along who is on it by chance, time after time", async () => {
  const house = await relays();
  const { transport } = house;
  const onConnection = new Set<(error: Error) => void>();
  // Everything but the live ones takes its time, so that whoever may travel beside the bad one does.
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
  await house.publish(outgoing({ id: "bad", topic: "t", maxAttempts: 6 }));
  await house.publish(
    ...Array.from({ length: 6 }, (_, n) => outgoing({ id: `t-${n}`, topic: "t", maxAttempts: 1 })),
  );
  await house.relay({ breaker: quick, retry: { firstDelay: 10, maxDelay: 20 } }).start();
  for (let n = 0; (await house.waiting()) > 0; n++) {
    await house.publish(outgoing({ id: `live-${n}`, topic: "t" }));
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  expect(await house.rows("select message_id, attempts from sagabox.dead_letter")).toEqual([
    { message_id: "bad", attempts: 6 },
  ]);
  expect(new Set(transport.ids.filter((id) => id.startsWith("t-"))).size).toBe(6);
});

test("A17: for an open destination the optimistic sender leases nothing and calls nobody; the relay delivers it", async () => {
  const house = await relays();
  const destinations = new Destinations({
    breaker: { failures: 1, cooldownMs: 60_000, maxCooldownMs: 60_000 },
    observer: silentObserver,
  });
  const { send } = house.optimistic({ destinations });
  house.transport.answer = ({ topic }) => (topic === "down" ? "unreachable" : "published");
  await send(outgoing({ id: "first", topic: "down" }));
  await house.observer.until("optimistic.failed");
  const calls = house.transport.calls.length;
  await send(outgoing({ id: "second", topic: "down" }));
  expect(await house.rows("select attempts, lease_until from sagabox.outbox")).toEqual([
    { attempts: 0, lease_until: null },
    { attempts: 0, lease_until: null },
  ]);
  expect(house.transport.calls).toHaveLength(calls);
  await send(outgoing({ id: "third", topic: "up" }));
  await house.observer.until("optimistic.succeeded");
  house.transport.answer = () => "published";
  await house.relay().start();
  await house.drained();
  expect(house.transport.ids.toSorted()).toEqual(["first", "second", "third"]);
});

test("A17: messages already leased when their destination opens are released, uncharged and in order", async () => {
  const house = await relays();
  const destinations = new Destinations({
    breaker: { failures: 1, cooldownMs: 1_500, maxCooldownMs: 1_500 },
    observer: house.observer,
  });
  const { send } = house.optimistic({ destinations });
  let letGo: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (letGo = resolve));
  house.transport.before = () => held;
  house.transport.answer = () => "unreachable";
  await send(outgoing({ id: "a", topic: "t", key: "k" }));
  await until(() => house.transport.calls.length === 1);
  await send(
    outgoing({ id: "b", topic: "t", key: "other" }),
    outgoing({ id: "c", topic: "t", key: "other" }),
  );
  letGo();
  await house.observer.until("optimistic.failed", 2);
  expect(house.observer.of("optimistic.failed").map(({ reason }) => reason)).toEqual(["error", "resting"]);
  house.transport.answer = () => "published";
  await house.relay({ destinations }).start();
  await house.drained();
  expect(house.transport.ids.filter((id) => id !== "a")).toEqual(["b", "c"]);
});

test("A17: a process without a relay finds out by itself that the broker is back", async () => {
  const house = await relays();
  const destinations = new Destinations({
    breaker: { failures: 1, cooldownMs: 20, maxCooldownMs: 20 },
    observer: house.observer,
  });
  const { send } = house.optimistic({ destinations });
  house.transport.answer = () => "unreachable";
  await send(outgoing({ topic: "t" }));
  await house.observer.until("breaker.opened");
  house.transport.answer = () => "published";
  await until(() => destinations.accepts("t"));
  await send(outgoing({ id: "probe", topic: "t" }));
  await house.observer.until("breaker.closed");
  expect(house.transport.ids).toEqual(["probe"]);
});
