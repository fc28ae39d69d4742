export type SpanValue = string | number | boolean;
export type SpanAttributes = Readonly<Record<string, SpanValue | undefined>>;

export interface SpanStart {
  readonly name: string;
  readonly kind: "producer" | "consumer" | "client" | "internal";
  /** The traceparent of the span it belongs to; without one it begins a trace. */
  readonly parent?: string | undefined;
  /** The traceparents of others it has to do with. */
  readonly links?: readonly string[];
  readonly attributes: SpanAttributes;
}

/** What went wrong, in words that may be written down anywhere. */
export interface SpanFailure {
  /** A class of failures, of which there are few. */
  readonly type: string;
  readonly message?: string | undefined;
  readonly stack?: string | undefined;
}

/** Something that takes time. None of its methods throws. */
export interface Span {
  /** What others name it by; undefined when there is nothing to name. */
  readonly traceparent: string | undefined;
  /** Whatever is begun in here, by us or by the user's own code, belongs to it. */
  run<T>(work: () => T): T;
  set(attributes: SpanAttributes): void;
  note(event: string, attributes?: SpanAttributes): void;
  fail(failure: SpanFailure): void;
  end(): void;
}

/** The port through which rooms tell what belongs to which trace. Made by `sagabox/opentelemetry`, or by nobody. */
export interface Tracing {
  begin(start: SpanStart): Span;
  /** The span that the calling code runs in. */
  active(): Span | undefined;
}

/** Stands for every span that nobody wants. */
export const silentSpan: Span = {
  traceparent: undefined,
  run: (work) => work(),
  set: () => undefined,
  note: () => undefined,
  fail: () => undefined,
  end: () => undefined,
};
