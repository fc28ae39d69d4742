import { expect, test } from "vitest";
import { aMessage } from "../../../test/support/messages.ts";
import { laneFor } from "../../message/index.ts";
import {
  groupNames,
  laneBindings,
  laneKey,
  planWaitingQueue,
  returnBinding,
  roundToDelayStep,
  routeFor,
  routingKeyFor,
} from "./topology.ts";

const settings = { prefix: "dp", broadcasts: new Set(["events.config.changed"]) };

test("B6: an event is published to the topic exchange of its domain, with service, type and severity as its key", () => {
  const route = routeFor("events.order.created", "event", settings);
  expect(route).toEqual({
    kind: "event",
    exchange: "dp.event.order",
    exchangeType: "topic",
    binding: "*.order.created.*",
  });
  const message = aMessage({ topic: "events.order.created", source: "shop" });
  expect(routingKeyFor(message, route)).toBe("shop.order.created.info");
  expect(routingKeyFor({ ...message, headers: { severity: "critical" } }, route)).toBe(
    "shop.order.created.critical",
  );
});

test("B6: a command is published to the direct exchange of its service, with service and operation as its key", () => {
  const route = routeFor("commands.stock.reserve", "command", settings);
  expect(route).toMatchObject({ exchange: "dp.command.stock", exchangeType: "direct" });
  expect(routingKeyFor(aMessage({ topic: "commands.stock.reserve", kind: "command" }), route)).toBe(
    "stock.reserve",
  );
  expect(routeFor("commands.reindex", "command", settings).binding).toBe("reindex.reindex");
});

test("B6: a topic listed in broadcasts uses a fanout exchange", () => {
  expect(routeFor("events.config.changed", "event", settings)).toMatchObject({
    exchange: "dp.broadcast.config.changed",
    exchangeType: "fanout",
  });
});

test("B6: each stream has its own queue", () => {
  expect(routeFor("streams.clicks", "stream", settings)).toMatchObject({
    exchange: "dp.stream",
    binding: "clicks",
    streamQueue: "dp.stream.clicks",
  });
});

test("B6: the names of a group contain prefix, service and group", () => {
  const names = groupNames("dp", { service: "shop", group: "billing" }, 2);
  expect(names).toEqual({
    id: "shop.billing",
    exchange: "dp.group.shop.billing",
    restExchange: "dp.group.shop.billing:rest2",
    queues: ["dp.queue.shop.billing:0", "dp.queue.shop.billing:1"],
    deadLetterQueue: "dp.dlq.shop.billing",
    membersQueue: "dp.membership.shop.billing",
  });
  expect(groupNames("dp", { service: "shop", group: "billing" }, undefined).queues).toEqual([
    "dp.queue.shop.billing",
  ]);
});

test("two groups never share a name", () => {
  const ids = [
    ["a.b", "c"],
    ["a", "b.c"],
    ["a~2eb", "c"],
    ["a b", "c"],
    ["ä", "c"],
  ].map(([service = "", group = ""]) => groupNames("dp", { service, group }, 8).id);
  expect(new Set(ids).size).toBe(ids.length);
});

test("long names and keys are shortened to the broker's limit and stay different", () => {
  const long = `${"x".repeat(60)}.`.repeat(4);
  const topics = [`${long}a`, `${long}b`];
  const routes = topics.map((topic) => routeFor(topic, "event", settings));
  expect(routes[0]?.binding).not.toBe(routes[1]?.binding);
  for (const [n, topic] of topics.entries()) {
    const route = routes[n] ?? routeFor(topic, "event", settings);
    const source = "語".repeat(255);
    const key = routingKeyFor(aMessage({ topic, source, headers: { severity: long } }), route);
    expect(Buffer.byteLength(key)).toBeLessThanOrEqual(255);
    expect(Buffer.byteLength(route.exchange)).toBeLessThanOrEqual(255);
  }
  const { queues } = groupNames("p".repeat(30), { service: "語".repeat(255), group: "語".repeat(255) }, 256);
  for (const queue of queues)
    expect(Buffer.byteLength(`86400000ms.20260102.${queue}`)).toBeLessThanOrEqual(255);
});

test.each([1, 2, 8, 16, 32, 64, 256])(
  "with %i partitions, every key is bound to exactly one partition",
  (partitions) => {
    for (let n = 0; n < 500; n++) {
      const key = laneKey({ key: `key-${n}`, id: "m" });
      const bound = Array.from({ length: partitions }, (_, p) => p).filter((partition) =>
        laneBindings(partition, partitions).some((binding) => matches(binding, key)),
      );
      expect(bound).toEqual([laneFor(`key-${n}`) % partitions]);
    }
  },
);

function matches(binding: string, key: string): boolean {
  const words = key.split(".");
  const wanted = binding.split(".");
  return wanted.length === words.length && wanted.every((word, n) => word === "*" || word === words[n]);
}

test("a message without a key is assigned a partition by its id", () => {
  expect(laneKey({ key: null, id: "m-1" })).toBe(laneKey({ key: "m-1", id: "other" }));
});

test.each([
  [0, 0],
  [-5, 0],
  [1, 100],
  [600, 600],
  [601, 700],
  [1_001, 1_500],
  [10_001, 15_000],
  [60_001, 90_000],
  [3_599_999, 3_600_000],
  [86_400_001, 172_800_000],
  [1e15, 30 * 86_400_000],
])("a delay of %i ms is rounded to %i ms", (delayMs, roundedMs) => {
  expect(roundToDelayStep(delayMs)).toBe(roundedMs);
});

test("delays are rounded to few steps", () => {
  const steps = new Set(Array.from({ length: 36_000 }, (_, n) => roundToDelayStep((n + 1) * 100)));
  expect(steps.size).toBeLessThan(70);
});

test("a waiting queue is used for one day and expires after its last message has left", () => {
  const waiting = planWaitingQueue("dp", "shop", 600, Date.UTC(2026, 10, 3, 23, 59));
  expect(waiting.queue).toBe("dp.retry.shop.600ms.20261103");
  expect(waiting.binding).toBe("600ms.20261103.dp.queue.shop.#");
  expect(waiting.routingKey("dp.queue.shop.billing:3")).toBe("600ms.20261103.dp.queue.shop.billing:3");
  expect(returnBinding("dp.queue.shop.billing:3")).toBe("*.*.dp.queue.shop.billing:3");
  expect(waiting.expiresMs).toBeGreaterThan(86_400_000 + 600);
});
