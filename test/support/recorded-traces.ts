import { context, trace, type Tracer } from "@opentelemetry/api";
import { AsyncLocalStorageContextManager } from "@opentelemetry/context-async-hooks";
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
  type ReadableSpan,
} from "@opentelemetry/sdk-trace-base";
import { openTelemetry } from "sagabox/opentelemetry";
import { onTestFinished } from "vitest";

/** An SDK of the test's own, which keeps every span that has ended. */
export function recordedTraces() {
  const exporter = new InMemorySpanExporter();
  const tracerProvider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  onTestFinished(async () => {
    context.disable();
    await tracerProvider.shutdown();
  });
  const tracer: Tracer = tracerProvider.getTracer("test");
  return {
    tracerProvider,
    tracer,
    telemetry: openTelemetry({ tracerProvider }),
    spans: () => exporter.getFinishedSpans(),
    /** The spans of one trace, by name. */
    namesIn: (traceId: string) => [
      ...new Set(
        exporter
          .getFinishedSpans()
          .filter((span) => span.spanContext().traceId === traceId)
          .map(({ name }) => name),
      ),
    ],
    named: (name: string): ReadableSpan[] => exporter.getFinishedSpans().filter((span) => span.name === name),
    /** Runs the work as a request of the outside world would, and says which trace it was. */
    async asRequest<T>(name: string, work: () => Promise<T>): Promise<{ traceId: string; result: T }> {
      const span = tracer.startSpan(name, { root: true });
      try {
        const result = await context.with(trace.setSpan(context.active(), span), work);
        return { traceId: span.spanContext().traceId, result };
      } finally {
        span.end();
      }
    },
  };
}

export function listEvents({ events }: ReadableSpan): string[] {
  return events.map(({ name }) => name);
}

/** Everything that spans say, as one text. */
export function tracesText(spans: readonly ReadableSpan[]): string {
  return JSON.stringify(
    spans.map(({ name, attributes, events, status, links }) => ({ name, attributes, events, status, links })),
  );
}
