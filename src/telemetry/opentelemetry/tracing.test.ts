import { AlwaysOffSampler, BasicTracerProvider } from "@opentelemetry/sdk-trace-base";
import { expect, test } from "vitest";
import { recordedTraces, tracesText } from "../../../test/support/traces.ts";
import { endSend, Spans, type Tracing } from "../index.ts";
import { openTelemetry } from "./index.ts";

const traceId = "0af7651916cd43dd8448eb211c80319c";
const traceparent = `00-${traceId}-b7ad6b7169203331-01`;
const message = { id: "m-1", type: "order.placed", topic: "orders", correlationId: "c-1", traceparent };

function spansOf(tracing: Tracing | undefined): Spans {
  return new Spans(tracing, "kafka");
}

test("G3: with no SDK registered nothing is recorded, and a trace that came is passed on", () => {
  const spans = spansOf(openTelemetry().tracing);
  const created = spans.create(message, undefined, undefined);
  expect(created.traceparent).toBeUndefined(); // so that the message gets one of our own
  const processed = spans.process(message, { consumer: "billing", attempt: 1 });
  expect(processed.traceparent).toBe(traceparent);
  expect(processed.run(() => 7)).toBe(7);
  for (const span of [created, processed]) {
    span.set({ a: 1 });
    span.note("b");
    span.fail({ type: "c", message: "d" });
    span.end();
  }
  expect(spans.currentSpan().traceparent).toBeUndefined();
});

test("a trace that is not sampled stays so: its messages carry the unsampled flag", () => {
  const tracerProvider = new BasicTracerProvider({ sampler: new AlwaysOffSampler() });
  const { tracing } = openTelemetry({ tracerProvider, meterProvider: false });
  expect(spansOf(tracing).create(message, undefined, undefined).traceparent).toMatch(/-00$/);
});

test("a tracer that throws does not prevent publishing", () => {
  const broken = {
    getTracer: () => ({
      startSpan: () => {
        throw new Error("broken");
      },
      startActiveSpan: () => undefined,
    }),
  };
  const { tracing } = openTelemetry({ tracerProvider: broken as never, meterProvider: false });
  const span = spansOf(tracing).create(message, undefined, undefined);
  expect([span.traceparent, span.run(() => "went on")]).toEqual([undefined, "went on"]);
});

test("a span whose methods all throw does not prevent work, which runs once", () => {
  const throws = (): never => {
    throw new Error("broken");
  };
  const span = { spanContext: throws, setAttribute: throws, setAttributes: throws, setStatus: throws };
  const broken = { getTracer: () => ({ startSpan: () => ({ ...span, addEvent: throws, end: throws }) }) };
  const { tracing } = openTelemetry({ tracerProvider: broken as never, meterProvider: false });
  const made = (tracing ?? expect.fail()).begin({ name: "send orders", kind: "client", attributes: {} });
  let done = 0;
  expect(made.run(() => (done += 1))).toBe(1);
  expect(() => made.run(throws)).toThrow("broken");
  made.set({ a: 1 });
  made.note("dead");
  made.fail({ type: "Error", message: "no" });
  made.end();
  expect(made.traceparent).toBeUndefined();
});

test("a span of the caller's own is the parent of what is created in it; a traceparent of the caller takes precedence", async () => {
  const traces = recordedTraces();
  const spans = spansOf(traces.telemetry.tracing);
  const { traceId: request } = await traces.asRequest("GET /", async () => {
    spans.create(message, traceparent, undefined).end();
    spans.create(message, undefined, traceparent).end();
  });
  spans.create(message, traceparent, undefined).end();
  const made = traces.named("create orders").map((span) => span.spanContext().traceId);
  expect(made).toEqual([request, traceId, traceId]);
});

test("a batch has a span in the trace of each message, and one of its own that links to all of them", () => {
  const traces = recordedTraces();
  const spans = spansOf(traces.telemetry.tracing);
  const others = ["1", "2"].map((n) => ({
    ...message,
    id: n,
    traceparent: traceparent.replace("0af", `${n}af`),
  }));
  const error = Object.assign(new Error("too large"), { name: "Refused" });
  endSend(spans.send(others, "relay"), (index) => (index === 1 ? error : undefined));
  const sent = traces.named("send orders");
  const trip = sent.find(({ attributes }) => attributes["messaging.batch.message_count"] === 2);
  const ids = others.map((one) => one.traceparent.slice(3, 35));
  expect(trip?.links.map(({ context }) => context.traceId)).toEqual(ids);
  expect(trip?.attributes["error.type"]).toBe("Refused");
  const each = sent.filter((span) => span !== trip);
  expect(each.map((span) => span.spanContext().traceId)).toEqual(ids);
  expect(each.map(({ attributes }) => attributes["error.type"])).toEqual([undefined, "Refused"]);
  for (const span of each)
    expect(span.links.map(({ context }) => context.spanId)).toContain(trip?.spanContext().spanId);
});

test("a saga transition is in the trace of the instance, and links to the trace that caused it", async () => {
  const traces = recordedTraces();
  const spans = spansOf(traces.telemetry.tracing);
  const saga = { id: "s-1", type: "order", traceparent };
  const { traceId: request } = await traces.asRequest("GET /", async () => spans.transition(saga, {}).end());
  spans.process(message, { consumer: "c", attempt: 1 }).run(() => spans.step(saga, "pay@2", {}).end());
  const [moved] = traces.named("transition order");
  expect(moved?.spanContext().traceId).toBe(traceId);
  expect(moved?.links.map(({ context }) => context.traceId)).toEqual([request]);
  const [step] = traces.named("step order pay");
  expect([step?.spanContext().traceId, step?.links.length]).toEqual([traceId, 0]);
  expect(step?.attributes["sagabox.saga.step"]).toBe("pay@2");
});

test("a failure without a message records its class only", () => {
  const traces = recordedTraces();
  const span = spansOf(traces.telemetry.tracing).create(message, undefined, undefined);
  span.fail({ type: "PAYLOAD_INVALID" });
  span.end();
  const text = tracesText(traces.spans());
  expect(text).toContain('"error.type":"PAYLOAD_INVALID"');
  expect(text).not.toContain("exception");
});

test("without tracing, every span is the silent span", () => {
  const spans = spansOf(undefined);
  expect(spans.enabled).toBe(false);
  expect(spans.create(message, undefined, undefined).traceparent).toBeUndefined();
  expect(spans.send([message, message], "relay").each).toEqual([]);
});
