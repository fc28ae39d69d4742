// Exports traces and metrics through the OpenTelemetry API to the SDK that the service has registered. Without an SDK
// nothing is recorded.
import { metrics, trace, type MeterProvider, type TracerProvider } from "@opentelemetry/api";
import { PACKAGE_VERSION, type Telemetry } from "../index.ts";
import { otelMetrics } from "./metrics.ts";
import { otelTracing } from "./tracing.ts";

export interface OpenTelemetryOptions {
  /** False turns traces off. Default: the provider registered with the OpenTelemetry API. */
  readonly tracerProvider?: TracerProvider | false;
  /** False turns metrics off. Default: the provider registered with the OpenTelemetry API. */
  readonly meterProvider?: MeterProvider | false;
  /** How many label combinations one metric may have; the rest is counted as "other". Default 500. */
  readonly seriesPerMetric?: number;
}

/** Creates the value for `createBus({ telemetry })`. Call it once per process and share it between buses. */
export function openTelemetry(options: OpenTelemetryOptions = {}): Telemetry {
  const { tracerProvider, meterProvider, seriesPerMetric = 500 } = options;
  const version = PACKAGE_VERSION;
  const tracers = tracerProvider ?? trace.getTracerProvider();
  const meter = (meters: MeterProvider) => meters.getMeter("sagabox", version);
  return {
    ...(tracers === false ? {} : { tracing: otelTracing(tracers.getTracer("sagabox", version)) }),
    ...(meterProvider === false
      ? {}
      : { observer: otelMetrics(() => meter(meterProvider ?? metrics.getMeterProvider()), seriesPerMetric) }),
  };
}
