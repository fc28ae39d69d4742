import { expect, test } from "vitest";
import { aMessage } from "../../../test/support/messages.ts";
import { Addresses } from "./addresses.ts";
import { routeOf, routingKeyOf } from "./topology.ts";

const settings = { prefix: "dp", broadcasts: new Set(["events.cache.cleared"]) };

test("an address that is remembered is the one that topology gives, whatever in the message decides it", () => {
  const addresses = new Addresses(settings);
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
    const route = routeOf(message.topic, message.kind, settings);
    expect(addresses.of(message)).toEqual({ route, routingKey: routingKeyOf(message, route) });
  }
});

test("more addresses than are kept are still right", () => {
  const addresses = new Addresses(settings);
  for (let n = 0; n < 2_500; n++) {
    const message = aMessage({ topic: `events.order.n${n}` });
    expect(addresses.of(message).route.binding).toBe(`*.order.n${n}.*`);
  }
});
