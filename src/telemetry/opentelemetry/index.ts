// Traces and metrics through the api of OpenTelemetry. Whichever SDK the service has registered gets them; without one
// nothing is recorded.
import { trace, type MeterProvider, type TracerProvider } from "@opentelemetry/api";
import { packageVersion, type Telemetry } from "../index.ts";
import { otelTracing } from "./tracing.ts";

export interface OpenTelemetryOptions {
  /** Default: the one that is registered with the api. */
  readonly tracerProvider?: TracerProvider;
  /** Default: the one that is registered with the api. */
  readonly meterProvider?: MeterProvider;
}

/** For `createBus({ telemetry })`. */
export function openTelemetry(options: OpenTelemetryOptions = {}): Telemetry {
  const tracers = options.tracerProvider ?? trace.getTracerProvider();
  return { tracing: otelTracing(tracers.getTracer("sagabox", packageVersion())) };
}
