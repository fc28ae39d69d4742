import { expect, test } from "vitest";
import { aMessage } from "../../../test/support/messages.ts";
import { MessageRoutes } from "./publisher.ts";
import { routeFor, routingKeyFor } from "./topology.ts";

const settings = { prefix: "dp", broadcasts: new Set(["events.cache.cleared"]) };

test("a cached route equals the route of the topology for every kind of message", () => {
  const routes = new MessageRoutes(settings);
  const base = aMessage({ topic: "events.order.placed" });
  const messages = [
    base,
    { ...base, source: "other" },
    { ...base, headers: { severity: "critical" } },
    { ...base, headers: { severity: "" } },
    { ...base, kind: "stream" as const },
    { ...base, topic: "commands.billing.charge", kind: "command" as const },
    { ...base, topic: "events.cache.cleared" },
  ];
  for (const message of [...messages, ...messages]) {
    const route = routeFor(message.topic, message.kind, settings);
    expect(routes.findRoute(message)).toEqual({ route, routingKey: routingKeyFor(message, route) });
  }
});

test("routes are still correct after the cache was cleared", () => {
  const routes = new MessageRoutes(settings);
  for (let n = 0; n < 2_500; n++) {
    const message = aMessage({ topic: `events.order.n${n}` });
    expect(routes.findRoute(message).route.binding).toBe(`*.order.n${n}.*`);
  }
});
