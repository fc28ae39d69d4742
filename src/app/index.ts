// Wires the rooms into a bus. `createBus` reads the options, `Bus` is the API of a service, and `Worker` starts and stops
// the background services.
export { createBus, findSagaVault, findShutdownMs } from "./create-bus.ts";
export { Bus } from "./bus.ts";
export type { BusOptions } from "./bus-options.ts";
export {
  message,
  type PreparedMessage,
  type SqlStatement,
  type StatementsOptions,
} from "./bus-transaction.ts";
export { HealthServer, type HealthServerOptions, type Readiness } from "./health-server.ts";
export type { LogOptions } from "./log-options.ts";
export type { BusTopology } from "./parts.ts";
export type { SagaNews } from "./saga-watch.ts";
export type { StartInput, StartOnOptions } from "./saga-transaction.ts";
export type { DrainOptions, DrainResult } from "./drain.ts";
export type { RunOptions, Running, StopResult } from "./worker.ts";
