import { CloudEvent, HTTP, Kafka, ValidationError, type CloudEventV1, type KafkaMessage } from "cloudevents";
import fc from "fast-check";
import { expect, test } from "vitest";
import { anyMessage } from "../../test/support/random-data.ts";
import { sampleMessage } from "../../test/support/messages.ts";
import { cloudEventBindings } from "./cloud-event-wire.ts";
import { fromWire, toWire } from "./wire.ts";

const { kafka, amqp, nats } = cloudEventBindings;

const shown = {
  specversion: "1.0",
  id: sampleMessage.id,
  source: "/orders",
  type: "orders.order.placed",
  subject: "ORD-12345",
  // The SDK keeps milliseconds.
  time: "2026-07-14T09:30:15.123Z",
  datacontenttype: "application/json",
  partitionkey: "ORD-12345",
  correlationid: "checkout-7",
  traceparent: sampleMessage.traceparent,
  data: JSON.parse(sampleMessage.data) as unknown,
};

test("C2: the SDK reads our structured events, over HTTP and over Kafka", () => {
  const { body, headers } = toWire(sampleMessage, { format: "cloudevents-structured", binding: kafka });
  const overHttp = HTTP.toEvent({ headers, body: body.toString() }) as CloudEvent;
  expect(overHttp).toMatchObject(shown);
  expect(overHttp.validate()).toBe(true);
  const message = { headers, key: sampleMessage.key ?? "", value: body.toString(), body: body.toString() };
  expect((Kafka.toEvent(message as KafkaMessage) as CloudEvent).cloneWith({})).toMatchObject(shown);
});

test("C2: the SDK reads our binary events over Kafka, and over HTTP, which uses the header names of NATS", () => {
  const record = toWire(sampleMessage, { format: "cloudevents-binary", binding: kafka });
  const message = { headers: record.headers, key: sampleMessage.key ?? "", value: record.body.toString() };
  const overKafka = Kafka.toEvent({ ...message, body: message.value } as KafkaMessage) as CloudEvent;
  expect(overKafka.cloneWith({})).toMatchObject({ ...shown, sagaboxschemaversion: "2" });
  const { body, headers } = toWire(sampleMessage, { format: "cloudevents-binary", binding: nats });
  const request = { headers: { ...headers, "content-type": "application/json" }, body: body.toString() };
  expect((HTTP.toEvent(request) as CloudEvent).cloneWith({})).toMatchObject(shown);
});

test("C2: the SDK accepts our events in every binding", () => {
  fc.assert(
    fc.property(anyMessage, fc.constantFrom(kafka, amqp, nats), (message, binding) => {
      fc.pre(message.data !== "1e400"); // more than a number of JavaScript can hold
      const { body, headers } = toWire(message, { format: "cloudevents-binary", binding });
      const own = Object.entries(headers).filter(([name]) => name.startsWith(binding.prefix));
      const attributes = Object.fromEntries(
        own.map(([name, value]) => [name.slice(binding.prefix.length), value]),
      );
      const data = JSON.parse(body.toString()) as unknown;
      const event = new CloudEvent({ ...attributes, data } as unknown as CloudEventV1<unknown>);
      expect([event.validate(), event.id, event.type]).toEqual([true, message.id, message.type]);
      const json = toWire(message, { format: "cloudevents-structured", binding }).body.toString();
      expect(new CloudEvent(JSON.parse(json) as CloudEventV1<unknown>).validate()).toBe(true);
    }),
    { numRuns: 500 },
  );
}, 120_000);

const theirs = new CloudEvent({
  id: "4711",
  source: "https://shop.example/orders",
  type: "com.example.placed",
  time: "2026-01-02T03:04:05.678Z",
  subject: "Größe 😀",
  datacontenttype: "application/json",
  partitionkey: "k-1",
  tenant: "acme",
  data: { total: 5, note: "Grüße" },
});

const understood = {
  id: "https://shop.example/orders 4711",
  kind: "event",
  type: "com.example.placed",
  topic: "orders",
  aggregateId: "Größe 😀",
  writtenAt: "2026-01-02T03:04:05.678Z",
  key: "k-1",
  data: '{"total":5,"note":"Grüße"}',
  headers: { "ce-id": "4711", "ce-subject": "Größe 😀", "ce-tenant": "acme" },
};

// Headers with the value undefined are not sent.
const stringHeaders = (headers: object): Record<string, string> =>
  JSON.parse(JSON.stringify(headers)) as Record<string, string>;

const readReceived = (headers: object, body: unknown) =>
  fromWire({
    body: Buffer.from(typeof body === "string" ? body : JSON.stringify(body)),
    headers: stringHeaders(headers),
    topic: "orders",
    key: null,
  });

test.each([
  ["binary over HTTP", () => HTTP.binary(theirs)],
  ["structured over HTTP", () => HTTP.structured(theirs)],
  ["binary over Kafka", () => Kafka.binary(theirs)],
  ["structured over Kafka", () => Kafka.structured(theirs)],
])("C2: we read events the SDK writes: %s", (_, written) => {
  const { headers, body } = written();
  expect(readReceived(headers, body)).toEqual({ message: expect.objectContaining(understood) as object });
});

test("C2: we refuse the events that the SDK refuses", () => {
  const bad = { ...JSON.parse(theirs.toString()), source: "no uri" } as CloudEventV1<unknown>;
  expect(() => new CloudEvent(bad)).toThrowError(ValidationError);
  const headers = { "content-type": "application/cloudevents+json" };
  expect(readReceived(headers, JSON.stringify(bad)).flaw).toMatchObject({ code: "CLOUD_EVENT_INVALID" });
});
