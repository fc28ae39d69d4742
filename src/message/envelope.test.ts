import { readFileSync } from "node:fs";
import fc from "fast-check";
import { expect, test } from "vitest";
import { sampleMessage } from "../../test/support/messages.ts";
import {
  decodeEnvelope,
  decodeJson,
  encodeEnvelope,
  encodeJson,
  noHeaders,
  parseTraceparent,
  type Message,
} from "./index.ts";

const golden = readFileSync(new URL("./envelope.golden.json", import.meta.url), "utf8");
const received = { topic: "received.from" };

interface Envelope {
  metadata: Record<string, unknown>;
  payload: Record<string, unknown>;
  tracing?: Record<string, unknown>;
}

function minimal(): Envelope {
  return {
    metadata: {
      message_id: "foreign-1",
      correlation_id: "c-1",
      timestamp: "2026-07-14T11:30:15.5+02:00",
      source_service: "legacy",
      target_service: null,
      message_type: "event",
      version: "1.0",
    },
    payload: { type: "OrderPlaced", data: { orderId: 1 }, schema_version: "1.0" },
  };
}

function changeEnvelope(change: (envelope: Envelope) => void): string {
  const envelope = minimal();
  change(envelope);
  return JSON.stringify(envelope);
}

test("C1: the envelope has the agreed names (golden file)", () => {
  expect(JSON.parse(encodeEnvelope(sampleMessage))).toEqual(JSON.parse(golden));
});

const traceparents = [
  "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
  "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
  "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
  "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
  "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
  '00-"\\',
  "",
];

test("C1: the envelope is valid JSON for any characters in its fields", () => {
  const texts = fc.oneof(fc.string(), fc.string({ unit: "binary" }), fc.uuid());
  const some = fc.option(texts);
  const fields = fc.record({
    id: texts,
    correlationId: texts,
    writtenAt: texts,
    source: texts,
    type: texts,
    topic: texts,
    target: some,
    causationId: some,
    sagaId: some,
    key: some,
    aggregateType: some,
    aggregateId: some,
    expiresAt: some,
    headers: fc.dictionary(texts, texts),
    priority: fc.integer({ min: 0, max: 9 }),
    traceparent: fc.constantFrom(...traceparents),
  });
  fc.assert(
    fc.property(fields, (values) => {
      const message: Message = { ...sampleMessage, ...values, data: "{}" };
      const trace = parseTraceparent(message.traceparent);
      const metadata = {
        message_id: message.id,
        correlation_id: message.correlationId,
        timestamp: message.writtenAt,
        source_service: message.source,
        target_service: message.target,
        message_type: message.kind,
        version: "1.0",
        causation_id: message.causationId,
        saga_id: message.sagaId,
        topic: message.topic,
        key: message.key,
        aggregate_type: message.aggregateType,
        aggregate_id: message.aggregateId,
        priority: message.priority,
        expires_at: message.expiresAt,
        headers: message.headers,
      };
      const payload = {
        type: message.type,
        data: {},
        schema_version: String(message.schemaVersion),
      };
      const tracing = {
        trace_id: trace?.traceId ?? null,
        span_id: trace?.spanId ?? null,
        parent_id: null,
        traceparent: message.traceparent,
      };
      expect(encodeEnvelope(message)).toBe(JSON.stringify({ metadata, payload, tracing }));
    }),
  );
});

test("C1: cached parts of a type are rebuilt when a message differs", () => {
  const unrelated = { target: null, causationId: null, sagaId: null, aggregateType: null, aggregateId: null };
  const plain: Message = { ...sampleMessage, ...unrelated, expiresAt: null, headers: noHeaders };
  const others: readonly Partial<Message>[] = [
    { source: "other" },
    { target: "other" },
    { kind: "command" },
    { topic: "other" },
    { priority: 9 },
    { causationId: "c" },
    { sagaId: "s" },
    { aggregateType: "a" },
    { aggregateId: "i" },
    { key: null },
    { expiresAt: "2030-01-01T00:00:00.000000Z" },
    { headers: { a: "b" } },
    { schemaVersion: 7 },
    { type: "t" },
  ];
  for (const message of others.flatMap((other) => [plain, { ...plain, ...other }, plain]))
    expect(decodeEnvelope(encodeEnvelope(message), { topic: message.topic })).toEqual(message);
});

test("C1: the golden file decodes to its original message", () => {
  const { data, ...rest } = decodeEnvelope(golden, received);
  const { data: expected, ...expectedRest } = sampleMessage;
  expect(rest).toEqual(expectedRest);
  expect(JSON.parse(data)).toEqual(JSON.parse(expected));
});

test("the data keeps its exact text, even where JSON allows another spelling", () => {
  expect(encodeEnvelope(sampleMessage)).toContain('"total":129.50');
  expect(decodeEnvelope(encodeEnvelope(sampleMessage), received)).toEqual(sampleMessage);
});

test("a message without optional fields survives encoding and decoding", () => {
  const bare: Message = {
    ...sampleMessage,

    key: null,
    causationId: null,
    sagaId: null,
    aggregateType: null,
    aggregateId: null,
    expiresAt: null,
    headers: {},
    data: "null",
  };
  expect(decodeEnvelope(encodeEnvelope(bare), received)).toEqual(bare);
});

test("C1: any payload, key and type survives encoding and decoding", () => {
  const anyData = fc.jsonValue({ maxDepth: 4 }).filter((value) => isSound(value));
  const anyText = fc
    .string({ minLength: 1, maxLength: 40, unit: "grapheme" })
    .filter((text) => text.trim() !== "");
  fc.assert(
    fc.property(anyData, anyText, anyText, (value, key, type) => {
      const message = { ...sampleMessage, data: encodeJson(value), key, type };
      expect(decodeEnvelope(encodeEnvelope(message), received)).toEqual(message);
    }),
    { numRuns: 500 },
  );
});

test("missing fields of a foreign envelope get defaults", () => {
  expect(decodeEnvelope(JSON.stringify(minimal(), null, 2), received)).toMatchObject({
    id: "foreign-1",
    topic: "received.from",
    key: null,
    headers: {},
    priority: 5,
    schemaVersion: 1,
    causationId: null,
    writtenAt: "2026-07-14T09:30:15.500Z",
    expiresAt: null,
  });
});

test("a message without tracing has the same trace on each delivery", () => {
  const first = decodeEnvelope(JSON.stringify(minimal()), received).traceparent;
  expect(first).toMatch(/^00-[0-9a-f]{32}-[0-9a-f]{16}-01$/);
  expect(decodeEnvelope(JSON.stringify(minimal()), received).traceparent).toBe(first);
});

test("a traceparent is built from trace id and span id", () => {
  const ids = { trace_id: "4bf92f3577b34da6a3ce929d0e0e4736", span_id: "00f067aa0ba902b7" };
  const text = changeEnvelope((envelope) => (envelope.tracing = ids));
  expect(decodeEnvelope(text, received).traceparent).toBe(`00-${ids.trace_id}-${ids.span_id}-01`);
});

test.each<[what: string, text: string]>([
  ["an empty text", ""],
  ["no JSON", "hello"],
  ["a list", "[]"],
  ["no payload", '{"metadata":{}}'],
  ["no data", changeEnvelope((envelope) => delete envelope.payload["data"])],
  ["an open text", '{"payload":{"data":"'],
  ["an open object", '{"payload":{"data":{"a":[}'],
  ["data twice", JSON.stringify(minimal()).replace('"data":', '"data":1,"data":')],
  ["payload twice", JSON.stringify(minimal()).replace('"payload":', '"payload":{"data":1},"payload":')],
  ["a prototype key", JSON.stringify(minimal()).replace('"metadata":{', '"metadata":{"__proto__":{},')],
  ["no message id", changeEnvelope((envelope) => delete envelope.metadata["message_id"])],
  ["a blank message id", changeEnvelope((envelope) => (envelope.metadata["message_id"] = " "))],
  ["another envelope version", changeEnvelope((envelope) => (envelope.metadata["version"] = "2.0"))],
  ["an unknown kind", changeEnvelope((envelope) => (envelope.metadata["message_type"] = "query"))],
  [
    "a control character in a name",
    changeEnvelope((envelope) => (envelope.metadata["source_service"] = "a\u001fb")),
  ],
  ["no type", changeEnvelope((envelope) => delete envelope.payload["type"])],
  ["a schema version of zero", changeEnvelope((envelope) => (envelope.payload["schema_version"] = "0"))],
  [
    "a time without zone",
    changeEnvelope((envelope) => (envelope.metadata["timestamp"] = "2026-07-14T09:30:15")),
  ],
  [
    "a day that does not exist",
    changeEnvelope((envelope) => (envelope.metadata["timestamp"] = "2026-13-45T09:30:15Z")),
  ],
  ["a priority of ten", changeEnvelope((envelope) => (envelope.metadata["priority"] = 10))],
  ["a header that is no text", changeEnvelope((envelope) => (envelope.metadata["headers"] = { a: 1 }))],
  [
    "more than two megabytes around the data",
    changeEnvelope((envelope) => (envelope.metadata["x"] = "x".repeat(2_097_152))),
  ],
])("an envelope with %s is refused", (_, text) => {
  expect(() => decodeEnvelope(text, received)).toThrowError(
    expect.objectContaining({ code: "ENVELOPE_INVALID" }),
  );
});

test("flaws in the data are found when the data is decoded", () => {
  const text = JSON.stringify(minimal()).replace('{"orderId":1}', '{"orderId":1,"orderId":2}');
  const { data } = decodeEnvelope(text, received);
  expect(() => decodeJson(data)).toThrowError(expect.objectContaining({ code: "PAYLOAD_DUPLICATE_KEY" }));
});

function isSound(value: unknown): boolean {
  try {
    return encodeJson(value) !== "";
  } catch {
    return false;
  }
}
