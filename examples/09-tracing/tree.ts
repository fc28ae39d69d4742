import type { ReadableSpan } from "@opentelemetry/sdk-trace-base";

/** The spans of the trace that began with a request, each below the one it belongs to, in the order in which they began. */
export function formatTree(all: readonly ReadableSpan[]): string {
  const root = all.find(({ name }) => name === "POST /orders");
  const spans = all.filter((span) => span.spanContext().traceId === root?.spanContext().traceId);
  const below = (parent: string | undefined): ReadableSpan[] =>
    spans.filter(({ parentSpanContext }) => parentSpanContext?.spanId === parent).sort(compareStart);
  const lines = (parent: string | undefined, depth: number): string[] =>
    below(parent).flatMap((span) => [
      `${"  ".repeat(depth)}${span.name}`,
      ...lines(span.spanContext().spanId, depth + 1),
    ]);
  return [`One trace, ${spans.length} spans:`, ...lines(undefined, 0)].join("\n");
}

function compareStart(one: ReadableSpan, other: ReadableSpan): number {
  const [seconds, nanos] = one.startTime;
  return seconds - other.startTime[0] || nanos - other.startTime[1];
}
