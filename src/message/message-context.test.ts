import { expect, test } from "vitest";
import { currentMessageContext, deriveContext, runInMessageContext } from "./message-context.ts";

const current = {
  messageId: "m-1",
  correlationId: "c-1",
  traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
};
const sources = { messageId: "m-2", randomBytes: (size: number) => new Uint8Array(size).fill(0x11) };

test("A4: a message published by a handler inherits cause, flow and trace", () => {
  expect(deriveContext(current, {}, sources)).toEqual({
    correlationId: "c-1",
    causationId: "m-1",
    traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-1111111111111111-01",
  });
});

test("A4: a message published outside a handler starts a flow and a trace", () => {
  expect(deriveContext(undefined, {}, sources)).toEqual({
    correlationId: "m-2",
    causationId: null,
    traceparent: `00-${"11".repeat(16)}-${"11".repeat(8)}-01`,
  });
});

test("A4: values of the caller override inherited ones", () => {
  const traceparent = "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-bbbbbbbbbbbbbbbb-00";
  expect(
    deriveContext(current, { correlationId: "c-9", causationId: "http-9", traceparent }, sources),
  ).toEqual({
    correlationId: "c-9",
    causationId: "http-9",
    traceparent: "00-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa-1111111111111111-00",
  });
});

test.each([{ correlationId: "" }, { causationId: "a\nb" }, { traceparent: "00-1-2-3" }])(
  "A4: %j is refused with a clear error",
  (overrides) => {
    expect(() => deriveContext(undefined, overrides, sources)).toThrowError(
      new RegExp(Object.keys(overrides)[0] ?? "-"),
    );
  },
);

test("a broken trace of the current message starts a new one instead of failing", () => {
  const derived = deriveContext({ ...current, traceparent: "broken" }, {}, sources);
  expect(derived.traceparent).toContain("11".repeat(16));
});

test("the context covers asynchronous work and ends with it", async () => {
  const seen = await runInMessageContext(current, async () => {
    await Promise.resolve();
    return currentMessageContext();
  });
  expect(seen).toBe(current);
  expect(currentMessageContext()).toBeUndefined();
});
