import type { Observer } from "./observer.ts";
import type { Tracing } from "./tracing.ts";

/** The tracer and observer of a bus, in addition to its log and its metrics page. */
export interface Telemetry {
  readonly tracing?: Tracing | undefined;
  readonly observer?: Observer | undefined;
}
