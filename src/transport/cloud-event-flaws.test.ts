import fc from "fast-check";
import { expect, test } from "vitest";
import { sampleMessage } from "../../test/support/messages.ts";
import { cloudEventBindings } from "./cloud-event-wire.ts";
import { fromWire, toWire, type ReceivedMessage } from "./wire.ts";

const good = { specversion: "1.0", id: "1", source: "/shop", type: "placed", time: "2026-01-02T03:04:05Z" };
const ours = { ...good, sagaboxversion: "1.0" };
const json = { "content-type": "application/cloudevents+json" };

const text = (body: string | Buffer, headers: Record<string, string> = json): ReceivedMessage => ({
  body: Buffer.from(body as string),
  headers,
  topic: "t",
  key: null,
});
const createStructured = (change: object, base: object = good): ReceivedMessage =>
  text(JSON.stringify({ ...base, ...change }));
const binary = (
  change: Record<string, string>,
  body: string | Buffer = "{}",
  more: object = {},
): ReceivedMessage =>
  text(body, {
    ...Object.fromEntries(
      Object.entries({ ...good, ...change }).map(([name, value]) => [`ce_${name}`, value]),
    ),
    ...more,
  });
const raw = (members: string): ReceivedMessage => text(`{${JSON.stringify(good).slice(1, -1)}${members}}`);

const malformed: Record<string, ReceivedMessage> = {
  "no id": createStructured({ id: undefined }),
  "an empty id": createStructured({ id: "" }),
  "an id that is null": createStructured({ id: null }),
  "an id that is an object": createStructured({ id: {} }),
  "no source": createStructured({ source: undefined }),
  "an empty source": createStructured({ source: "" }),
  "a source with a space": createStructured({ source: "my shop" }),
  "no type": createStructured({ type: undefined }),
  "an empty type": createStructured({ type: "" }),
  "a type that is too long": createStructured({ type: "x".repeat(256) }),
  "no specversion": createStructured({ specversion: undefined }),
  "specversion 0.3": createStructured({ specversion: "0.3" }),
  "specversion 2.0": createStructured({ specversion: "2.0" }),
  "specversion as a number": createStructured({ specversion: 1 }),
  "an invalid time": createStructured({ time: "yesterday" }),
  "a time without a zone": createStructured({ time: "2026-01-02T03:04:05" }),
  "the 30th of February": createStructured({ time: "2026-02-30T00:00:00Z" }),
  "a leap second": createStructured({ time: "2026-12-31T23:59:60Z" }),
  "the year 0": createStructured({ time: "0000-01-01T00:00:00Z" }),
  "a time as a number": createStructured({ time: 1_767_323_045 }),
  "an invalid expiry": createStructured({ expirytime: "soon" }),
  "data and data_base64": createStructured({ data: 1, data_base64: "e30=" }),
  "invalid base64": createStructured({ data_base64: "%%%" }),
  "base64 that is cut off": createStructured({ data_base64: "e30" }),
  "base64 that is a number": createStructured({ data_base64: 5 }),
  "bytes in base64": createStructured({ data_base64: "/wD+", datacontenttype: "application/octet-stream" }),
  "base64 that is not the declared JSON": createStructured({ data_base64: "aGVsbG8=" }),
  "base64 that is not UTF-8": createStructured({ data_base64: "/wD+", datacontenttype: "text/plain" }),
  "a key twice": raw(',"id":"2"'),
  "a key twice, once escaped": raw(',"\\u0069d":"2"'),
  "data twice": raw(',"data":1,"data":2'),
  "data twice, once escaped": raw(',"data":1,"d\\u0061ta":2'),
  "data with an escaped name": raw(',"d\\u0061ta":2'),
  "data that is not JSON": raw(',"data":blah'),
  "data that is cut off": raw(',"data":{"a":'),
  "a control character in an attribute": createStructured({ subject: "a\u0007b" }),
  "a line break in an id": createStructured({ id: "a\nb" }),
  "a C1 control character": createStructured({ id: "a\u0085b" }),
  "a NUL": createStructured({ id: "a\u0000b" }),
  "half a surrogate pair": raw(',"subject":"\\ud800"'),
  "a name in capitals": createStructured({ traceParent: "x" }),
  "a name with an underscore": createStructured({ my_extension: "x" }),
  "an empty name": createStructured({ "": "x" }),
  "a name of the prototype": raw(',"__proto__":"x"'),
  "an extension that is an array": createStructured({ list: [1] }),
  "an extension that is an object": createStructured({ object: { a: 1 } }),
  "an extension that is a fraction": createStructured({ number: 1.5 }),
  "an extension that overflows a number": raw(',"number":1e400'),
  "an extension that is a huge number": raw(',"number":12345678901234567890'),
  "attributes of several megabytes": createStructured({ subject: "x".repeat(3_000_000) }),
  "very deep nesting": text("[".repeat(100_000)),
  "a list": text("[]"),
  "an array of one event": text(JSON.stringify([good])),
  null: text("null"),
  "a text": text('"hello"'),
  "an empty body": text(""),
  "no JSON": text("<event/>"),
  "an event that is cut off": text(JSON.stringify(good).slice(0, -3)),
  "trailing bytes after the event": text(`${JSON.stringify(good)}{}`),
  "bytes that are not UTF-8": text(Buffer.from([0x7b, 0xff, 0x7d])),
  "a batch": text(JSON.stringify([good]), { "content-type": "application/cloudevents-batch+json" }),
  "another event format": text(Buffer.from([1, 2]), { "content-type": "application/cloudevents+protobuf" }),
  "a partition key that is too long": createStructured({ partitionkey: "k".repeat(256) }),
  "an unknown kind": createStructured({ sagaboxkind: "rumour" }),
  "a schema version of 0": createStructured({ sagaboxschemaversion: 0 }),
  "a schema version that is a word": createStructured({ sagaboxschemaversion: "new" }),
  "a priority of 10": createStructured({ sagaboxpriority: 10 }),
  "a priority that is a word": createStructured({ sagaboxpriority: "high" }),
  "headers that are not JSON": createStructured({ sagaboxheaders: "{" }),
  "headers that are an array": createStructured({ sagaboxheaders: "[1]" }),
  "headers that are not strings": createStructured({ sagaboxheaders: '{"a":1}' }),
  "headers with a name twice": createStructured({ sagaboxheaders: '{"a":"1","a":"2"}' }),
  "an unknown sagabox version": createStructured({ sagaboxversion: "2.0" }),
  "a sagabox event with a foreign source": createStructured({ source: "https://else.example/x" }, ours),
  "a sagabox event with a badly escaped source": createStructured({ source: "/%zz" }, ours),
  "a sagabox event with an empty source": createStructured({ source: "/" }, ours),
  "a sagabox event with an id that is too long": createStructured({ id: "x".repeat(256) }, ours),
  "binary without an id": binary({ id: "" }),
  "binary without a specversion": binary({ specversion: "" }),
  "binary with another specversion": binary({ specversion: "0.2" }),
  "binary with a bad time": binary({ time: "2026-13-01T00:00:00Z" }),
  "binary with a control character": binary({ subject: "a\tb" }),
  "binary with an invalid name": binary({ "my-extension": "x" }),
  "binary with an attribute given twice": binary({}, "{}", { "ce-id": "2" }),
  "binary whose data is not JSON": binary({}, "hello", { "content-type": "application/json" }),
  "binary whose data is not UTF-8": binary({}, Buffer.from([0xff, 0xfe]), { "content-type": "text/plain" }),
  "binary whose text has a NUL": binary({}, "a\0b", { "content-type": "text/plain" }),
  "binary whose data is bytes": binary({}, "x", { "content-type": "image/png" }),
  "binary in another character set": binary({}, "{}", { "content-type": "application/json; charset=latin1" }),
  "binary with an invalid content type": binary({}, "{}", { "content-type": "json" }),
  "binary with attributes of several megabytes": binary({ subject: "x".repeat(3_000_000) }),
};

test.each(Object.entries(malformed))(
  "C2, D-08: %s is reported as a flaw and does not throw",
  (_, received) => {
    const { message, flaw } = fromWire(received);
    expect(flaw).toMatchObject({ code: "CLOUD_EVENT_INVALID" });
    expect(message.id).toMatch(/^unidentified-[0-9a-f]{32}$/);
    expect(() => JSON.parse(message.data) as unknown).not.toThrow();
    expect((flaw?.message ?? "").length).toBeLessThan(300);
  },
);

test("C2: a flaw's text does not contain data of the event", () => {
  for (const received of [
    createStructured({ time: "canary" }),
    raw(',"data":canary'),
    text('{"canary'),
    binary({ "can-ary": "canary" }),
  ]) {
    expect(fromWire(received).flaw?.message).not.toMatch(/canary/);
  }
});

test("C2: reading a damaged event never throws, and a message that is read has valid JSON data", () => {
  const form = (format: "cloudevents-structured" | "cloudevents-binary") =>
    toWire(sampleMessage, { format, binding: cloudEventBindings.kafka });
  const wires = [form("cloudevents-structured"), form("cloudevents-binary")];
  fc.assert(
    fc.property(
      fc.constantFrom(...wires),
      fc.nat(),
      fc.integer({ min: 0, max: 255 }),
      fc.boolean(),
      (wire, at, byte, cut) => {
        const position = at % wire.body.length;
        const body = Buffer.from(cut ? wire.body.subarray(0, position) : wire.body);
        if (!cut) body[position] = byte;
        const { message, flaw } = fromWire({ body, headers: wire.headers, topic: "t", key: null });
        if (flaw === undefined) expect(() => JSON.parse(message.data) as unknown).not.toThrow();
        else expect(flaw).toMatchObject({ code: "CLOUD_EVENT_INVALID" });
      },
    ),
    { numRuns: 3_000 },
  );
}, 120_000);
