import { expect, test } from "vitest";
import { outgoing, relays, until } from "../../test/support/relays.ts";

const numbered = (count: number, name: string, change: Parameters<typeof outgoing>[0] = {}) =>
  Array.from({ length: count }, (_, n) => outgoing({ id: `${name}${n}`, key: `${name}${n}`, ...change }));

test("A13, rule 10: urgent messages overtake a backlog of other keys, the most urgent first", async () => {
  const harness = await relays();
  await harness.publish(...numbered(300, "usual"));
  await harness.publish(...numbered(3, "nine", { priority: 9 }), ...numbered(3, "seven", { priority: 7 }));
  harness.transport.before = () => new Promise((resolve) => setTimeout(resolve, 2));
  await harness.relay({ batchSize: 20 }).start();
  await harness.drained();
  const at = (name: string) => harness.transport.ids.findIndex((id) => id.startsWith(name));
  const last = (name: string) => harness.transport.ids.findLastIndex((id) => id.startsWith(name));
  expect(last("nine")).toBeLessThan(at("seven"));
  expect(last("seven")).toBeLessThan(100);
  expect(harness.transport.ids).toHaveLength(306);
});

test("A13, rule 10: a key keeps its order under any priorities", async () => {
  const harness = await relays();
  const priorities = [0, 9, 5, 7, 1, 5, 5, 9, 2, 8] as const;
  const keys = ["a", "b", "c", "d"];
  const messages = priorities.flatMap((priority, n) =>
    keys.map((key) => outgoing({ id: `${key}${n}`, key, priority })),
  );
  for (let n = 0; n < messages.length; n += 8) await harness.publish(...messages.slice(n, n + 8));
  await harness.relay({ batchSize: 6 }).start();
  await harness.drained();
  for (const key of keys) {
    const inKey = harness.transport.ids.filter((id) => id.startsWith(key));
    expect(inKey).toEqual(priorities.map((_, n) => `${key}${n}`));
  }
});

test("A13, rule 10: a key keeps its order under mixed priorities while others are sent", async () => {
  const harness = await relays();
  await harness.relay({ batchSize: 10 }).start();
  for (let n = 0; n < 60; n++) {
    const priority = [5, 9, 0, 5, 6][n % 5] ?? 5;
    await harness.publish(...["a", "b", "c"].map((key) => outgoing({ id: `${key}${n}`, key, priority })));
  }
  await harness.drained();
  for (const key of ["a", "b", "c"]) {
    const inKey = harness.transport.ids.filter((id) => id.startsWith(key)).map((id) => Number(id.slice(1)));
    expect(inKey).toEqual(Array.from({ length: 60 }, (_, n) => n));
  }
  expect(harness.transport.ids).toHaveLength(180);
});

test("A13, rule 10: a low-priority head inherits the priority of a normal successor", async () => {
  const harness = await relays();
  await harness.publish(outgoing({ id: "low", key: "k", priority: 0 }), outgoing({ id: "behind", key: "k" }));
  const { lane } = outgoing({ key: "k" });
  let n = 0;
  const crowd = Array.from({ length: 200 }, () => {
    while (outgoing({ key: `n${n}` }).lane !== lane) n += 1;
    return outgoing({ id: `n${n}`, key: `n${n++}` });
  });
  await harness.publish(...crowd);
  harness.transport.before = () => new Promise((resolve) => setTimeout(resolve, 2));
  await harness.relay({ batchSize: 10 }).start();
  await harness.drained();
  const { ids } = harness.transport;
  expect(ids.indexOf("low")).toBeLessThan(ids.indexOf("behind"));
  expect(ids.indexOf("behind")).toBeLessThan(100);
});

test("A13, rule 10: a low-priority message that has waited long enough overtakes normal ones", async () => {
  const harness = await relays();
  await harness.publish(...numbered(1, "low", { priority: 2 }), ...numbered(1, "lower", { priority: 0 }));
  await harness.tamper("update sagabox.outbox set due_at = clock_timestamp() - interval '400 ms'");
  await harness.publish(...numbered(200, "usual"));
  harness.transport.before = () => new Promise((resolve) => setTimeout(resolve, 2));
  await harness.relay({ batchSize: 10, ageing: 100 }).start();
  await harness.drained();
  expect(harness.transport.ids.indexOf("low0")).toBeLessThan(30);
});

test("A13, rule 10: low-priority messages are sent when nothing else waits", async () => {
  const harness = await relays();
  await harness.publish(...numbered(5, "low", { priority: 0 }));
  await harness.relay({ ageing: 60_000 }).start();
  await until(() => harness.transport.ids.length === 5);
  await harness.drained();
});

test("A13, rule 10: a failing urgent head holds back its key, including normal rows", async () => {
  const harness = await relays();
  let failures = 0;
  harness.transport.answer = ({ id }) => (id === "1" && failures++ < 2 ? "rejected" : "published");
  await harness.publish(
    outgoing({ id: "1", key: "k", priority: 9 }),
    outgoing({ id: "2", key: "k" }),
    outgoing({ id: "3", key: "k", priority: 8 }),
  );
  await harness.relay({ retry: { firstDelay: 50, maxDelay: 50 } }).start();
  await harness.drained();
  expect(harness.transport.ids).toEqual(["1", "2", "3"]);
});
