import { expect, test } from "vitest";
import { aMessage } from "../../../test/support/messages.ts";
import { fromWire } from "../../transport/index.ts";
import { encodeMessage, toTextHeaders } from "./properties.ts";

const formats = ["sagabox", "cloudevents-structured", "cloudevents-binary"] as const;

function toReceived({ body, properties }: ReturnType<typeof encodeMessage>) {
  const headers = toTextHeaders(properties.headers as Record<string, string>);
  return fromWire({ body, headers, contentType: properties.contentType, topic: "t", key: null });
}

test.each(formats)("C2: a message in %s is read back with its reserved headers", (format) => {
  const headers = { "sagabox-claim": "store 1", "sagabox-sealed": "name", "x-tenant": "acme" };
  const message = aMessage({ headers, key: "k" });
  expect(toReceived(encodeMessage(message, format))).toEqual({ message });
});

test.each(formats)("C2: headers larger than a frame are still delivered in %s", (format) => {
  const names = Array.from({ length: 30 }, (_, n) => [`h${n}`, "x".repeat(4_000)]);
  const message = aMessage({ headers: Object.fromEntries(names) as Record<string, string> });
  const parcel = encodeMessage(message, format);
  expect(Buffer.byteLength(JSON.stringify(parcel.properties.headers))).toBeLessThan(50_000);
  expect(toReceived(parcel)).toEqual({ message });
});

test("C2: the content type is set as an AMQP property", () => {
  const types = formats.map((format) => encodeMessage(aMessage(), format).properties.contentType);
  expect(types).toEqual([
    "application/json",
    "application/cloudevents+json; charset=utf-8",
    "application/json",
  ]);
});

test("C2: attributes may have AMQP types", () => {
  const headers = {
    "cloudEvents:time": { "!": "timestamp", value: 1_767_323_045 },
    "cloudEvents:count": 7,
    "cloudEvents:flag": true,
    "cloudEvents:odd": { "!": "timestamp", value: "x" },
  };
  expect(toTextHeaders(headers as never)).toEqual({
    "cloudEvents:time": "2026-01-02T03:04:05.000Z",
    "cloudEvents:count": "7",
    "cloudEvents:flag": "true",
    "cloudEvents:odd": '{"!":"timestamp","value":"x"}',
  });
});
