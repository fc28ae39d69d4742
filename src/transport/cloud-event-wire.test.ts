import fc from "fast-check";
import { expect, test } from "vitest";
import { anyMessage } from "../../test/support/random-data.ts";
import { aMessage, sampleMessage } from "../../test/support/messages.ts";
import { cloudEventBindings } from "./cloud-event-wire.ts";
import { fromWire, toWire } from "./wire.ts";

const formats = ["sagabox", "cloudevents-structured", "cloudevents-binary"] as const;
const forms = Object.values(cloudEventBindings).flatMap((binding) =>
  formats.map((format) => ({ format, binding })),
);

test("C2: a message is read back unchanged from every format", () => {
  fc.assert(
    fc.property(anyMessage, fc.constantFrom(...forms), (message, form) => {
      const { body, headers } = toWire(message, form);
      expect(fromWire({ body, headers, topic: "elsewhere", key: message.key })).toEqual({ message });
    }),
    { numRuns: 2_500 },
  );
}, 120_000);

test.each([
  ["kafka", "ce_", { "content-type": "application/json" }],
  ["amqp", "cloudEvents:", { "content-type": "application/json" }],
  ["nats", "ce-", { "ce-datacontenttype": "application/json" }],
] as const)("C2: the binary mode follows the binding of %s", (name, prefix, more) => {
  const message = aMessage({ id: "m-1", data: '{"n":1.10}', headers: { "x-tenant": "acme" } });
  const { body, headers } = toWire(message, {
    format: "cloudevents-binary",
    binding: cloudEventBindings[name],
  });
  expect(body.toString()).toBe('{"n":1.10}');
  expect(headers).toEqual({
    [`${prefix}specversion`]: "1.0",
    [`${prefix}id`]: "m-1",
    [`${prefix}source`]: "/test",
    [`${prefix}type`]: "order.placed",
    [`${prefix}time`]: message.writtenAt,
    [`${prefix}correlationid`]: "c-m-1",
    [`${prefix}traceparent`]: message.traceparent,
    [`${prefix}sagaboxversion`]: "1.0",
    [`${prefix}sagaboxkind`]: "event",
    [`${prefix}sagaboxtopic`]: "events.order.placed",
    [`${prefix}sagaboxschemaversion`]: "1",
    [`${prefix}sagaboxpriority`]: "5",
    [`${prefix}sagaboxheaders`]: '{"x-tenant":"acme"}',
    traceparent: message.traceparent,
    "x-tenant": "acme",
    ...more,
  });
});

const foreign = { specversion: "1.0", id: "1", source: "/shop", type: "placed" };
const withPrefix = (prefix: string, attributes: object = foreign): Record<string, string> =>
  Object.fromEntries(Object.entries(attributes).map(([name, value]) => [`${prefix}${name}`, String(value)]));
const structured = Buffer.from(JSON.stringify({ ...foreign, data: { a: 1 } }));
const bare = Buffer.from('{"a":1}');

test.each([
  ["Kafka's binary mode", { body: bare, headers: withPrefix("ce_") }],
  ["the binary mode of NATS", { body: bare, headers: withPrefix("ce-") }],
  ["names in other cases", { body: bare, headers: withPrefix("Ce-") }],
  [
    "AMQP's binary mode",
    { body: bare, headers: withPrefix("cloudEvents:"), contentType: "application/json" },
  ],
  ["AMQP's other prefix", { body: bare, headers: withPrefix("cloudEvents_") }],
  ["a structured event", { body: structured, headers: { "content-type": "application/cloudevents+json" } }],
  [
    "a content type in another case",
    { body: structured, headers: { "Content-Type": "Application/CloudEvents+JSON; charset=UTF-8" } },
  ],
  [
    "a content type outside the headers",
    { body: structured, headers: {}, contentType: "application/cloudevents+json" },
  ],
  ["a structured event without headers, as in the oldest NATS binding", { body: structured, headers: {} }],
])("C2: %s is recognised", (_, received) => {
  const { message, flaw } = fromWire({ ...received, topic: "orders", key: "k" });
  expect(flaw).toBeUndefined();
  expect(message).toMatchObject({
    id: "/shop 1",
    type: "placed",
    topic: "orders",
    key: "k",
    data: '{"a":1}',
  });
});

test("C2: a foreign event without a time gets the time it was received", () => {
  const { message } = fromWire({ body: bare, headers: withPrefix("ce_"), topic: "t", key: null });
  expect(Math.abs(Date.parse(message.writtenAt) - Date.now())).toBeLessThan(60_000);
});

test("C2: a foreign event that is sent again is not read as the foreign event, in any format", () => {
  const event = { ...foreign, subject: "S", custom: "x" };
  const good = fromWire({ body: bare, headers: withPrefix("ce_", event), topic: "t", key: null });
  const { specversion: _, ...broken } = event;
  const bad = fromWire({
    body: bare,
    headers: withPrefix("ce-", { ...broken, specversion: "7" }),
    topic: "t",
    key: null,
  });
  expect(good.message.headers).toEqual({ "ce-id": "1", "ce-subject": "S", "ce-custom": "x" });
  expect(bad.flaw).toMatchObject({ code: "CLOUD_EVENT_INVALID" });
  for (const message of [good.message, { ...bad.message, source: "s" }]) {
    for (const form of forms) {
      const { body, headers } = toWire(message, form);
      expect(fromWire({ body, headers, topic: "t", key: null })).toEqual({ message });
    }
  }
});

test("C2: an intermediary may add attributes to our events", () => {
  const { body, headers } = toWire(sampleMessage, {
    format: "cloudevents-binary",
    binding: cloudEventBindings.kafka,
  });
  const { message } = fromWire({
    body,
    headers: { ...headers, ce_seenby: "gateway" },
    topic: "t",
    key: null,
  });
  expect(message).toEqual({ ...sampleMessage, headers: { "x-tenant": "acme", "ce-seenby": "gateway" } });
});
