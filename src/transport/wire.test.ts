import { expect, test } from "vitest";
import { aMessage } from "../../test/support/messages.ts";
import { cloudEventBindings } from "./cloud-event-wire.ts";
import { fromWire, toWire, toWireParts } from "./wire.ts";

test("C1: a written message is read back unchanged", () => {
  const message = aMessage({ key: "Schlüssel 😀", headers: { "x-tenant": "acme" }, data: '{"n":1e21}' });
  const { body, headers } = toWire(message);
  expect(fromWire({ body, headers, topic: message.topic, key: message.key })).toEqual({ message });
  expect(headers).toMatchObject({
    message_id: message.id,
    "x-tenant": "acme",
    "content-type": "application/json",
  });
});

test.each(["sagabox", "cloudevents-structured", "cloudevents-binary"] as const)(
  "C1: a message of format %s has the same body and headers when written in parts",
  (format) => {
    const form = { format, binding: cloudEventBindings.kafka };
    const sources = ["orders", "orders", "billing", "orders"];
    const messages = sources.map((source) => aMessage({ source, headers: { "x-tenant": "acme" } }));
    for (const message of messages) {
      const { text, headers, common } = toWireParts(message, form);
      const list = [...headers, ...common];
      const pairs = list.map((name, n) => [name, list[n + 1]]).filter((_, n) => n % 2 === 0);
      const whole = toWire(message, form);
      expect([text, Object.fromEntries(pairs)]).toEqual([whole.body.toString(), whole.headers]);
    }
  },
);

test("messages of a type share one array of common headers", () => {
  const form = { format: "sagabox", binding: cloudEventBindings.kafka } as const;
  const [first, second] = [aMessage({ id: "1" }), aMessage({ id: "2" })].map((one) => toWireParts(one, form));
  expect(first?.common).toBe(second?.common);
});

test.each([
  ["not JSON", Buffer.from("hello"), '"hello"'],
  ["another JSON", Buffer.from('{"a":1}'), '{"a":1}'],
  ["bytes", Buffer.from([0xff, 0x00, 0x41]), JSON.stringify("\uFFFD\uFFFDA")],
  ["nothing", Buffer.alloc(0), '""'],
])("E1: %s is returned with a flaw and with the parts that could be read", (_, body, data) => {
  const received = { body, headers: { event_type: "order.placed" }, topic: "orders", key: "k" };
  const { message, flaw } = fromWire(received);
  expect(flaw).toMatchObject({ code: "ENVELOPE_INVALID" });
  expect(message).toMatchObject({ type: "order.placed", topic: "orders", key: "k", data });
  expect(message.id).toMatch(/^unidentified-[0-9a-f]{32}$/);
  expect(fromWire(received).message.id).toBe(message.id);
});
