// Telemetry: the events that sagabox emits, the Observer that receives them, and the observers that turn them into log
// lines, metrics and spans. Events never contain a payload.
export type { LogLevel, TelemetryEvent } from "./event.ts";
export {
  telemetryEvents,
  type TelemetryContext,
  type TelemetryEvents,
  type TelemetryName,
} from "./events.ts";
export { dropFailure, fanOut, silentObserver, type Observer } from "./observer.ts";
export { logger, sagaLog, type LogFormat, type LoggerOptions } from "./logger.ts";
export { metricCatalogue, type MetricName } from "./metric-catalogue.ts";
export { PACKAGE_VERSION } from "./package-version.ts";
export { durationText, mermaidText, printable, printableJson, withoutPasswords } from "./printable.ts";
export {
  endSend,
  failureType,
  silentSpans,
  spanFailure,
  Spans,
  type SendSpans,
  type SpanMessage,
} from "./spans.ts";
export {
  silentSpan,
  type Span,
  type SpanAttributes,
  type SpanFailure,
  type SpanStart,
  type Telemetry,
  type Tracing,
} from "./tracing.ts";
export { MetricRegistry, type Instrument, type Metric, type Series } from "./metrics.ts";
export {
  prometheus,
  recordersFor,
  type PrometheusObserver,
  type PrometheusOptions,
  type Recorders,
} from "./prometheus.ts";
