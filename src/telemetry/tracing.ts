import type { Observer } from "./observer.ts";

export type SpanValue = string | number | boolean;
export type SpanAttributes = Readonly<Record<string, SpanValue | undefined>>;

export interface SpanStart {
  readonly name: string;
  readonly kind: "producer" | "consumer" | "client" | "internal";
  /** The traceparent of the parent span; without one the span starts a trace. */
  readonly parent?: string | undefined;
  /** The traceparents of linked spans. */
  readonly links?: readonly string[];
  readonly attributes: SpanAttributes;
}

/** Describes a failure without personal data. */
export interface SpanFailure {
  /** Error code or class name; few distinct values. */
  readonly type: string;
  readonly message?: string | undefined;
  readonly stack?: string | undefined;
}

/** A span of a trace. None of its methods throws. */
export interface Span {
  /** The W3C traceparent of this span; undefined if it is not recorded. */
  readonly traceparent: string | undefined;
  /** Runs `work` with this span active, so that spans started inside become its children. */
  run<T>(work: () => T): T;
  set(attributes: SpanAttributes): void;
  note(event: string, attributes?: SpanAttributes): void;
  fail(failure: SpanFailure): void;
  end(): void;
}

/** Starts spans. Implemented by `sagabox/opentelemetry`. */
export interface Tracing {
  begin(start: SpanStart): Span;
  /** Returns the span that is active in the calling code. */
  active(): Span | undefined;
}

/** A span that records nothing, used if tracing is off. */
export const silentSpan: Span = {
  traceparent: undefined,
  run: (work) => work(),
  set: () => undefined,
  note: () => undefined,
  fail: () => undefined,
  end: () => undefined,
};

/** The tracer and observer of a bus, in addition to its log and its metrics page. */
export interface Telemetry {
  readonly tracing?: Tracing | undefined;
  readonly observer?: Observer | undefined;
}
