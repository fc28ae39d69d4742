import type { Observer } from "./observer.ts";
import type { Tracing } from "./tracing.ts";

/** Where a bus sends what it tells, beside its log and its own page of metrics. */
export interface Telemetry {
  readonly tracing?: Tracing | undefined;
  readonly observer?: Observer | undefined;
}
