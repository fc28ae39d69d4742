import { expect, test } from "vitest";
import {
  checkHeaders,
  commonHeaders,
  noHeaders,
  ownHeaders,
  particularHeaders,
  wireHeaders,
} from "./headers.ts";
import { sampleMessage } from "../../test/support/messages.ts";

test("A4: names become lower case and values stay as they are", () => {
  expect(checkHeaders({ "X-Tenant": "Größe 7", "user.agent": "" })).toEqual({
    "x-tenant": "Größe 7",
    "user.agent": "",
  });
});

test.each(Object.values(ownHeaders))("A4: %s is reserved", (name) => {
  expect(() => checkHeaders({ [name]: "x" })).toThrowError(`Header "${name}" is reserved`);
});

test.each(["Sagabox-Lane", "ce-id", "Nats-Msg-Id", "content-type", "x-death"])(
  "A4: %s is reserved",
  (name) => {
    expect(() => checkHeaders({ [name]: "x" })).toThrowError(/is reserved/);
  },
);

test.each(["", "a b", "-a", "ä", "a:b", "a\r\nb", "__proto__", "x".repeat(129)])(
  "the name %j is refused",
  (name) => {
    expect(() => checkHeaders(Object.fromEntries([[name, "x"]]))).toThrowError(/must match/);
  },
);

test.each(["a\r\nb", "a\nb", "a\u0000", "\ud83d"])("the value %j is refused", (value) => {
  expect(() => checkHeaders({ a: value })).toThrowError('Header "a" must not contain');
});

test("A4: a value may have 8 kB and no more", () => {
  expect(checkHeaders({ a: "x".repeat(8_192) })["a"]).toHaveLength(8_192);
  expect(() => checkHeaders({ a: "é".repeat(4_097) })).toThrowError(/longer than 8192 bytes/);
});

test("A4: there may be 64 headers and no more", () => {
  const some = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, i) => [`h${i}`, "x"]));
  expect(Object.keys(checkHeaders(some(64)))).toHaveLength(64);
  expect(() => checkHeaders(some(65))).toThrowError(/65 headers/);
});

test("A4: a value that is not a string, or a duplicate name, is refused", () => {
  expect(() => checkHeaders(JSON.parse('{"a":1}') as Record<string, string>)).toThrowError(
    /must be a string/,
  );
  expect(() => checkHeaders({ a: "1", A: "2" })).toThrowError(/given twice/);
});

test("A4: the headers of a message repeat fields of its envelope", () => {
  expect(wireHeaders(sampleMessage)).toEqual({
    "x-tenant": "acme",
    message_id: sampleMessage.id,
    correlation_id: "checkout-7",
    causation_id: "cmd-1",
    trace_id: "4bf92f3577b34da6a3ce929d0e0e4736",
    traceparent: sampleMessage.traceparent,
    message_type: "event",
    event_type: "orders.order.placed",
    schema_version: "2",
    source_service: "orders",
    saga_id: "saga-1",
  });
});

test("A4: in the headers a message without a cause names itself", () => {
  const { id } = sampleMessage;
  expect(wireHeaders({ ...sampleMessage, causationId: null })).toMatchObject({ causation_id: id });
});

test.each([sampleMessage, { ...sampleMessage, headers: noHeaders, causationId: null, sagaId: null }])(
  "A4: what a message has for itself and what its type has in common are all of its headers",
  (message) => {
    const pairs = particularHeaders(message).map((part, n, list) => [part, list[n + 1]] as const);
    const own = Object.fromEntries(pairs.filter((_, n) => n % 2 === 0));
    expect({ ...own, ...commonHeaders(message) }).toEqual(wireHeaders(message));
  },
);
