import fc from "fast-check";
import { expect, test } from "vitest";
import { anyMessage } from "../../test/support/random-data.ts";
import { aMessage, sampleMessage } from "../../test/support/messages.ts";
import { cloudEventAttributes } from "./cloud-event-attributes.ts";
import { fromCloudEvent, toCloudEvent, toCloudEventJson } from "./cloud-events.ts";

const elsewhere = { topic: "elsewhere", key: null };

test("C2: every message survives the conversion to a CloudEvent and back, in both modes", () => {
  fc.assert(
    fc.property(anyMessage, (message) => {
      expect(fromCloudEvent(toCloudEventJson(message), elsewhere)).toEqual(message);
      expect(fromCloudEvent(toCloudEvent(message), elsewhere)).toEqual(message);
    }),
    { numRuns: 2_500 },
  );
}, 120_000);

test("C2: a message becomes the attributes of the specification, with its data unchanged", () => {
  const text = toCloudEventJson(sampleMessage);
  expect(text.endsWith(`,"data":${sampleMessage.data}}`)).toBe(true);
  expect(JSON.parse(text)).toEqual({
    specversion: "1.0",
    id: "0190b2f4-7c00-7abc-8def-0123456789ab",
    source: "/orders",
    type: "orders.order.placed",
    time: "2026-07-14T09:30:15.123456Z",
    subject: "ORD-12345",
    datacontenttype: "application/json",
    partitionkey: "ORD-12345",
    correlationid: "checkout-7",
    causationid: "cmd-1",
    traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    expirytime: "2026-07-15T09:30:15Z",
    sagaboxversion: "1.0",
    sagaboxkind: "event",
    sagaboxtopic: "events.orders.order.placed",
    sagaboxschemaversion: 2,
    sagaboxpriority: 5,
    sagaboxsaga: "saga-1",
    sagaboxaggregate: "order",
    sagaboxheaders: '{"x-tenant":"acme"}',
    data: JSON.parse(sampleMessage.data) as unknown,
  });
});

test("C2: attribute names follow the specification", () => {
  const names = Object.keys(cloudEventAttributes);
  expect(names.filter((name) => !/^[a-z0-9]{1,20}$/.test(name))).toEqual([]);
});

const foreign = {
  specversion: "1.0",
  id: "4711",
  source: "https://shop.example/orders",
  type: "com.example.placed",
};

test("C2: a foreign event needs no sagabox attributes", () => {
  const message = fromCloudEvent(JSON.stringify({ ...foreign, data: { total: 5 } }), {
    topic: "orders",
    receivedAt: "2026-01-02T03:04:05.678Z",
  });
  expect(message).toEqual({
    ...aMessage(),
    id: "https://shop.example/orders 4711",
    kind: "event",
    type: "com.example.placed",
    schemaVersion: 1,
    topic: "orders",
    key: null,
    data: '{"total":5}',
    headers: { "ce-id": "4711" },
    correlationId: "https://shop.example/orders 4711",
    traceparent: expect.stringMatching(/^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/) as string,
    source: "https://shop.example/orders",
    priority: 5,
    writtenAt: "2026-01-02T03:04:05.678Z",
  });
});

test("C2: optional attributes of a foreign event are used or kept as headers", () => {
  const event = {
    ...foreign,
    time: "2026-01-02t03:04:05.5+01:00",
    subject: "ORD-1",
    dataschema: "https://shop.example/schema/1",
    partitionkey: "k",
    correlationid: "c",
    causationid: "m-0",
    traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    expirytime: "2026-01-03T00:00:00Z",
    sequence: 7,
    flag: true,
    nothing: null,
    empty: "",
  };
  expect(fromCloudEvent(JSON.stringify(event), { topic: "orders", key: "not this" })).toMatchObject({
    writtenAt: "2026-01-02T02:04:05.500Z",
    aggregateId: "ORD-1",
    key: "k",
    correlationId: "c",
    causationId: "m-0",
    traceparent: event.traceparent,
    expiresAt: "2026-01-03T00:00:00Z",
    data: "null",
    headers: {
      "ce-id": "4711",
      "ce-subject": "ORD-1",
      "ce-dataschema": "https://shop.example/schema/1",
      "ce-sequence": "7",
      "ce-flag": "true",
    },
  });
});

test("C2: equal ids of two sources stay distinct messages", () => {
  const readId = (source: string, id: string): string =>
    fromCloudEvent({ attributes: { ...foreign, source, id }, data: null }, { topic: "t" }).id;
  const ids = [
    readId("/a", "1"),
    readId("/b", "1"),
    readId("/a", "b 1"),
    readId("/a%20b", "1"),
    readId("/a", "/a 1"),
  ];
  expect(new Set(ids).size).toBe(ids.length);
  expect(readId("/a", "1")).toBe("/a 1");
  const long = "x".repeat(300);
  expect(readId("/a", long)).toMatch(/^cloudevent-[0-9a-f]{64}$/);
  expect(readId("/a", long)).toBe(readId("/a", long));
  expect(readId("/b", long)).not.toBe(readId("/a", long));
});

test.each([
  [
    "JSON of another name",
    "application/vnd.order+json; charset=UTF-8",
    '{"n":1.10}',
    '{"n":1.10}',
    undefined,
  ],
  ["no content type", undefined, "[1]", "[1]", undefined],
  ["text", "text/plain", 'say "hi"', '"say \\"hi\\""', "text/plain"],
  ["XML", "application/xml", "<a/>", '"<a/>"', "application/xml"],
  ["nothing", "application/json", "", "null", undefined],
  ["null", "application/json", "null", "null", undefined],
])("C2, D-15: %s is data", (_, datacontenttype, data, expected, kept) => {
  const attributes = { ...foreign, ...(datacontenttype === undefined ? {} : { datacontenttype }) };
  const options = { topic: "t" };
  const bytes = Buffer.from(data);
  for (const input of [data, bytes]) {
    const message = fromCloudEvent({ attributes, data: input }, options);
    expect(message.data).toBe(expected);
    expect(message.headers["ce-datacontenttype"]).toBe(kept);
  }
  const encoded = JSON.stringify({ ...attributes, data_base64: bytes.toString("base64") });
  expect(fromCloudEvent(encoded, options).data).toBe(expected);
});

test("C2: structured data stays unchanged for any content type", () => {
  const text = `{"data" : {"n":12345678901234567890}, ${JSON.stringify({ ...foreign, datacontenttype: "application/octet-stream" }).slice(1)}`;
  expect(fromCloudEvent(text, { topic: "t" }).data).toBe('{"n":12345678901234567890}');
});
