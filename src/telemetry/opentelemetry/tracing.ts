import {
  context,
  SpanKind,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Attributes,
  type Context,
  type Span as OtelSpan,
  type SpanContext,
  type Tracer,
} from "@opentelemetry/api";
import { formatTraceparent, parseTraceparent } from "../../message/index.ts";
import {
  silentSpan,
  type Span,
  type SpanAttributes,
  type SpanFailure,
  type SpanStart,
  type Tracing,
} from "../index.ts";

const KINDS = {
  producer: SpanKind.PRODUCER,
  consumer: SpanKind.CONSUMER,
  client: SpanKind.CLIENT,
  internal: SpanKind.INTERNAL,
} as const;

/** Creates spans through the OpenTelemetry API, which records nothing until an SDK is registered. */
export function otelTracing(tracer: Tracer): Tracing {
  return {
    begin: (start) => quietly(() => begin(tracer, start)) ?? silentSpan,
    active: () =>
      quietly(() => {
        const span = trace.getSpan(context.active());
        return span === undefined ? undefined : toSpan(span, context.active());
      }),
  };
}

function begin(tracer: Tracer, { name, kind, parent, links = [], attributes }: SpanStart): Span {
  const around = parentContext(parent);
  const linked = links.flatMap((link) => parseSpanContext(link) ?? []);
  const span = tracer.startSpan(
    name,
    {
      kind: KINDS[kind],
      attributes: dropUndefined(attributes),
      links: linked.map((other) => ({ context: other })),
      root: around === undefined,
    },
    around ?? context.active(),
  );
  return toSpan(span, trace.setSpan(context.active(), span));
}

function toSpan(span: OtelSpan, within: Context): Span {
  return {
    get traceparent() {
      return quietly(() => writeTraceparent(span.spanContext()));
    },
    run: (work) => runIn(within, work),
    set: (attributes) => void quietly(() => span.setAttributes(dropUndefined(attributes))),
    note: (event, attributes = {}) => void quietly(() => span.addEvent(event, dropUndefined(attributes))),
    fail: (failure) => quietly(() => fail(span, failure)),
    end: () => quietly(() => span.end()),
  };
}

function fail(span: OtelSpan, { type, message, stack }: SpanFailure): void {
  span.setAttribute("error.type", type);
  span.setStatus({ code: SpanStatusCode.ERROR, ...(message === undefined ? {} : { message }) });
  if (message === undefined) return;
  span.addEvent(
    "exception",
    dropUndefined({ "exception.type": type, "exception.message": message, "exception.stacktrace": stack }),
  );
}

/** Ignores errors of a sampler, processor or exporter: they must not stop a message. */
function quietly<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}

/** Runs the work exactly once, even if the context manager throws. */
function runIn<T>(within: Context, work: () => T): T {
  let isBegun = false;
  try {
    return context.with(within, () => {
      isBegun = true;
      return work();
    });
  } catch (error) {
    if (isBegun) throw error;
    return work();
  }
}

// Reuse the active context if it is the parent; a context parsed from a traceparent would count as remote.
function parentContext(parent: string | undefined): Context | undefined {
  const other = parseSpanContext(parent);
  if (other === undefined) return undefined;
  const active = context.active();
  const isActive = trace.getSpanContext(active)?.spanId === other.spanId;
  return isActive ? active : trace.setSpanContext(active, other);
}

function parseSpanContext(traceparent: string | undefined): SpanContext | undefined {
  const parsed = parseTraceparent(traceparent);
  if (parsed === undefined) return undefined;
  const { traceId, spanId, flags } = parsed;
  return { traceId, spanId, traceFlags: Number.parseInt(flags, 16) & TraceFlags.SAMPLED, isRemote: true };
}

function writeTraceparent(spanContext: SpanContext): string | undefined {
  const { traceId, spanId, traceFlags } = spanContext;
  if (!trace.isSpanContextValid(spanContext)) return undefined;
  return formatTraceparent({ traceId, spanId, flags: traceFlags.toString(16).padStart(2, "0") });
}

function dropUndefined(attributes: SpanAttributes): Attributes {
  const known: Attributes = {};
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined) known[name] = value;
  return known;
}
