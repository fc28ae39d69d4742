import { expect, test } from "vitest";
import { aMessage } from "../../../test/support/messages.ts";
import { MessageRoutes } from "./publisher.ts";
import { routeFor, routingKeyFor } from "./topology.ts";

const settings = { prefix: "dp", broadcasts: new Set(["events.cache.cleared"]) };

test("an address that is remembered is the one that topology gives, whatever in the message decides it", () => {
  const addresses = new MessageRoutes(settings);
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
    expect(addresses.findRoute(message)).toEqual({ route, routingKey: routingKeyFor(message, route) });
  }
});

test("more addresses than are kept are still right", () => {
  const addresses = new MessageRoutes(settings);
  for (let n = 0; n < 2_500; n++) {
    const message = aMessage({ topic: `events.order.n${n}` });
    expect(addresses.findRoute(message).route.binding).toBe(`*.order.n${n}.*`);
  }
});
