import { expect, test } from "vitest";
import { outgoing, relays, until } from "../../test/support/relays.ts";

const numbered = (count: number, name: string, change: Parameters<typeof outgoing>[0] = {}) =>
  Array.from({ length: count }, (_, n) => outgoing({ id: `${name}${n}`, key: `${name}${n}`, ...change }));

test("A13, rule 10: urgent messages overtake a backlog of other keys, the most urgent first", async () => {
  const house = await relays();
  await house.publish(...numbered(300, "usual"));
  await house.publish(...numbered(3, "nine", { priority: 9 }), ...numbered(3, "seven", { priority: 7 }));
  house.transport.before = () => new Promise((resolve) => setTimeout(resolve, 2));
  await house.relay({ batchSize: 20 }).start();
  await house.drained();
  const at = (name: string) => house.transport.ids.findIndex((id) => id.startsWith(name));
  const last = (name: string) => house.transport.ids.findLastIndex((id) => id.startsWith(name));
  expect(last("nine")).toBeLessThan(at("seven"));
  expect(last("seven")).toBeLessThan(100);
  expect(house.transport.ids).toHaveLength(306);
});

test("A13, rule 10: inside a key order is order, whatever the priorities", async () => {
  const house = await relays();
  const priorities = [0, 9, 5, 7, 1, 5, 5, 9, 2, 8] as const;
  const keys = ["a", "b", "c", "d"];
  const messages = priorities.flatMap((priority, n) =>
    keys.map((key) => outgoing({ id: `${key}${n}`, key, priority })),
  );
  for (let n = 0; n < messages.length; n += 8) await house.publish(...messages.slice(n, n + 8));
  await house.relay({ batchSize: 6 }).start();
  await house.drained();
  for (const key of keys) {
    const inKey = house.transport.ids.filter((id) => id.startsWith(key));
    expect(inKey).toEqual(priorities.map((_, n) => `${key}${n}`));
  }
});

test("A13, rule 10: inside a key order is order for messages of mixed urgency that arrive while others are sent", async () => {
  const house = await relays();
  await house.relay({ batchSize: 10 }).start();
  for (let n = 0; n < 60; n++) {
    const priority = [5, 9, 0, 5, 6][n % 5] ?? 5;
    await house.publish(...["a", "b", "c"].map((key) => outgoing({ id: `${key}${n}`, key, priority })));
  }
  await house.drained();
  for (const key of ["a", "b", "c"]) {
    const inKey = house.transport.ids.filter((id) => id.startsWith(key)).map((id) => Number(id.slice(1)));
    expect(inKey).toEqual(Array.from({ length: 60 }, (_, n) => n));
  }
  expect(house.transport.ids).toHaveLength(180);
});

test("A13, rule 10: a low head inherits the rank of a usual successor, which would otherwise wait for it", async () => {
  const house = await relays();
  await house.publish(outgoing({ id: "low", key: "k", priority: 0 }), outgoing({ id: "behind", key: "k" }));
  const { lane } = outgoing({ key: "k" });
  let n = 0;
  const crowd = Array.from({ length: 200 }, () => {
    while (outgoing({ key: `n${n}` }).lane !== lane) n += 1;
    return outgoing({ id: `n${n}`, key: `n${n++}` });
  });
  await house.publish(...crowd);
  house.transport.before = () => new Promise((resolve) => setTimeout(resolve, 2));
  await house.relay({ batchSize: 10 }).start();
  await house.drained();
  const { ids } = house.transport;
  expect(ids.indexOf("low")).toBeLessThan(ids.indexOf("behind"));
  expect(ids.indexOf("behind")).toBeLessThan(100);
});

test("A13, rule 10: a low one that has waited long enough goes before the usual ones", async () => {
  const house = await relays();
  await house.publish(...numbered(1, "low", { priority: 2 }), ...numbered(1, "lower", { priority: 0 }));
  await house.tamper("update sagabox.outbox set due_at = clock_timestamp() - interval '400 ms'");
  await house.publish(...numbered(200, "usual"));
  house.transport.before = () => new Promise((resolve) => setTimeout(resolve, 2));
  await house.relay({ batchSize: 10, ageing: 100 }).start();
  await house.drained();
  expect(house.transport.ids.indexOf("low0")).toBeLessThan(30);
});

test("A13, rule 10: low ones go when nothing else wants the place", async () => {
  const house = await relays();
  await house.publish(...numbered(5, "low", { priority: 0 }));
  await house.relay({ ageing: 60_000 }).start();
  await until(() => house.transport.ids.length === 5);
  await house.drained();
});

test("A13, rule 10: a failing urgent head holds back its key, the usual rows of it too", async () => {
  const house = await relays();
  let failures = 0;
  house.transport.answer = ({ id }) => (id === "1" && failures++ < 2 ? "rejected" : "published");
  await house.publish(
    outgoing({ id: "1", key: "k", priority: 9 }),
    outgoing({ id: "2", key: "k" }),
    outgoing({ id: "3", key: "k", priority: 8 }),
  );
  await house.relay({ retry: { firstDelay: 50, maxDelay: 50 } }).start();
  await house.drained();
  expect(house.transport.ids).toEqual(["1", "2", "3"]);
});
