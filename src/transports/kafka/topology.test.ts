import { expect, test } from "vitest";
import { isValidTopic } from "../../message/index.ts";
import { retryStep, Topology } from "./topology.ts";

test("B2, B6: names are built from prefix, topic, service and group", () => {
  const topology = new Topology("shop.");
  expect(topology.topicName("events.order.placed")).toBe("shop.events.order.placed");
  expect(topology.groupName("orders", "billing")).toBe("shop.orders.billing");
  expect(topology.deadLetterTopic("events.order.placed")).toBe("shop.events.order.placed.dlq");
  expect(topology.retryTopic("events.order.placed", "orders", "billing", 2)).toBe(
    "shop.events.order.placed.orders.billing.retry-2",
  );
});

test("a long name is shortened to a valid, unique name", () => {
  const topology = new Topology("shop.");
  const topic = "t".repeat(249);
  const names = [
    topology.topicName(topic),
    topology.deadLetterTopic(topic),
    topology.retryTopic(topic, "s", "g", 1),
    topology.retryTopic(topic, "s", "h", 1),
    topology.retryTopic(topic, "s", "h", 2),
  ];
  expect(new Set(names).size).toBe(names.length);
  for (const name of names) expect(isValidTopic(name)).toBe(true);
  expect(names[1]).toMatch(/\.dlq$/);
});

test("invalid characters are replaced, and the names stay different", () => {
  const topology = new Topology();
  const [one, two] = ["a b", "a/b"].map((group) => topology.retryTopic("t", "s", group, 1));
  expect(one).not.toBe(two);
  expect(isValidTopic(one)).toBe(true);
});

test.each([
  [0, 1],
  [10_000, 1],
  [10_001, 2],
  [60_000, 2],
  [300_000, 3],
  [3_600_000, 3],
])("B2: a delay of %i ms waits in step %i", (delayMs, step) => {
  expect(retryStep(delayMs, [10_000, 60_000, 300_000])).toBe(step);
});
