// Traces and metrics through the api of OpenTelemetry. Whichever SDK the service has registered gets them; without one
// nothing is recorded.
import { metrics, trace, type MeterProvider, type TracerProvider } from "@opentelemetry/api";
import { packageVersion, type Telemetry } from "../index.ts";
import { otelMetrics } from "./metrics.ts";
import { otelTracing } from "./tracing.ts";

export interface OpenTelemetryOptions {
  /** False for no traces. Default: the provider that is registered with the api. */
  readonly tracerProvider?: TracerProvider | false;
  /** False for no metrics. Default: the provider that is registered with the api. */
  readonly meterProvider?: MeterProvider | false;
  /** How many label combinations one metric may have; the rest is counted as "other". Default 500. */
  readonly seriesPerMetric?: number;
}

/** For `createBus({ telemetry })`. Made once in a process, for however many buses it has. */
export function openTelemetry(options: OpenTelemetryOptions = {}): Telemetry {
  const { tracerProvider, meterProvider, seriesPerMetric = 500 } = options;
  const version = packageVersion();
  const tracers = tracerProvider ?? trace.getTracerProvider();
  const meter = (meters: MeterProvider) => meters.getMeter("sagabox", version);
  return {
    ...(tracers === false ? {} : { tracing: otelTracing(tracers.getTracer("sagabox", version)) }),
    ...(meterProvider === false
      ? {}
      : { observer: otelMetrics(() => meter(meterProvider ?? metrics.getMeterProvider()), seriesPerMetric) }),
  };
}
