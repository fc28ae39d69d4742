import { BasicTracerProvider, BatchSpanProcessor, InMemorySpanExporter } from "@opentelemetry/sdk-trace-base";
import { createIdSource, poolRandomBytes } from "../../src/message/index.ts";
import { compose } from "../../src/outbox/index.ts";
import { randomBytes, systemClock } from "../../src/runtime/index.ts";
import { Spans, type Tracing } from "../../src/telemetry/index.ts";
import { openTelemetry } from "../../src/telemetry/opentelemetry/index.ts";
import { size, type Bench } from "../harness/bench.ts";
import { compare, type Contender } from "../harness/compare.ts";
import { result, type Result } from "../harness/result.ts";
import { median, computeRatio } from "../harness/statistics.ts";
import { order, OrderPlaced } from "../product/order-placed.ts";

/** What traces cost where a message is made: without them, with the api alone, and with an SDK that records all. */
export async function measureTracing(bench: Bench): Promise<Result[]> {
  const count = size(bench, 100_000, 20_000);
  const exporter = new InMemorySpanExporter();
  const tracerProvider = new BasicTracerProvider({ spanProcessors: [new BatchSpanProcessor(exporter)] });
  const of = (traced: Tracing | undefined): Contender => composeContender(new Spans(traced, "noop"), count);
  const samples = await compare(bench, "µs for each message made", {
    off: of(undefined),
    api: of(openTelemetry({ meterProvider: false }).tracing),
    sdk: of(openTelemetry({ tracerProvider, meterProvider: false }).tracing),
    // The calls of the port alone, as often as one message meets them on its whole way.
    port: async () => portAlone(new Spans(undefined, "noop"), count),
  });
  exporter.reset();
  await tracerProvider.shutdown();
  const [off, api, sdk, port] = [samples.off, samples.api, samples.sdk, samples.port].map(median);
  return [
    result("G3.port", computeRatio(samples.port, samples.off), {
      µs: port ?? 0,
      "µs for the whole": off ?? 0,
    }),
    result("G3.api", computeRatio(samples.api, samples.off), { µs: api ?? 0, "µs without": off ?? 0 }),
    result("G3.sdk", computeRatio(samples.sdk, samples.off), { µs: sdk ?? 0, "µs without": off ?? 0 }),
  ];
}

function composeContender(spans: Spans, count: number): Contender {
  const context = {
    service: "bench",
    newId: createIdSource({ wallMs: () => systemClock.wallMs(), randomBytes }),
    randomBytes: poolRandomBytes(randomBytes),
    maxAttempts: 5,
    pack: (_: unknown, __: unknown, data: unknown) => ({ data: JSON.stringify(data), headers: {} }),
    spans,
  };
  return async () => {
    const began = performance.now();
    for (let n = 0; n < count; n++) await compose(context, OrderPlaced, order(n));
    return ((performance.now() - began) * 1_000) / count;
  };
}

// Publish, send, process and settle each ask whether tracing is on; two of them make a span even if it is off.
function portAlone(spans: Spans, count: number): number {
  const message = { id: "m", type: "order.placed", topic: "events.order.placed" };
  let silent = 0;
  const began = performance.now();
  for (let n = 0; n < count; n++) {
    const span = spans.create(message, undefined, undefined);
    span.set({ a: n });
    silent += span.run(() => 1);
    span.end();
    for (let asked = 0; asked < 4; asked++) if (!spans.enabled) silent += 1;
  }
  const tookMs = performance.now() - began;
  if (silent !== count * 5) throw new Error("tracing is on");
  return (tookMs * 1_000) / count;
}
