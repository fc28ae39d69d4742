import { expect, test } from "vitest";
import { isValidTopic, resolveTopic } from "./contract.ts";

const createContract = (name: string, kind: "event" | "command" | "stream" = "event") => ({
  kind,
  name,
  topic: null,
});

test.each([
  ["OrderCreated", "events.order.created"],
  ["order_created", "events.order.created"],
  ["order-created", "events.order.created"],
  ["orderCreated", "events.order.created"],
  ["orders.order.placed", "events.orders.order.placed"],
  ["HTTPRequestFailed", "events.http.request.failed"],
  ["Order2Created", "events.order2.created"],
  ["order__created_", "events.order.created"],
])("A18: %s goes to %s", (name, topic) => {
  expect(resolveTopic(createContract(name))).toBe(topic);
});

test("A18: commands and streams have their own topic prefixes", () => {
  expect(resolveTopic(createContract("ReserveStock", "command"))).toBe("commands.reserve.stock");
  expect(resolveTopic(createContract("sensor.reading", "stream"))).toBe("streams.sensor.reading");
});

test("A18: the contract's topic overrides the routing function, which overrides the default", () => {
  const routing = ({ type }: { type: string }) => (type === "A" ? "routed" : undefined);
  expect(resolveTopic({ ...createContract("A"), topic: "explicit" }, routing)).toBe("explicit");
  expect(resolveTopic(createContract("A"), routing)).toBe("routed");
  expect(resolveTopic(createContract("B"), routing)).toBe("events.b");
});

test("A18: an invalid topic of a routing function is refused", () => {
  expect(() => resolveTopic(createContract("A"), () => "a b")).toThrowError(
    'The topic of event "A" must have',
  );
  expect(() => resolveTopic(createContract("x".repeat(255)))).toThrowError(/TOPIC|topic/);
});

test.each(["a", "A.b_c-9", "x".repeat(249)])("%s is a topic", (topic) => {
  expect(isValidTopic(topic)).toBe(true);
});

test.each(["", " ", "a/b", "a*", "ä", ".", "..", "x".repeat(250), 1, null])("%j is no topic", (topic) => {
  expect(isValidTopic(topic)).toBe(false);
});
