// Wires the rooms into a bus. `createBus` reads the options, `Bus` is the API of a service, and `Worker` starts and stops
// the background services.
export { createBus } from "./create-bus.ts";
export { Bus } from "./bus.ts";
export { message, type PreparedMessage } from "./prepared-message.ts";
export type { BusOptions } from "./bus-options.ts";
export type { BusTransaction } from "./bus-transaction.ts";
export { HealthServer, type HealthServerOptions, type Readiness } from "./health-server.ts";
export type { LogOptions } from "./log-options.ts";
export { findSagaVault } from "./saga-vaults.ts";
export type { SagaNews } from "./saga-watch.ts";
export { findShutdownMs } from "./shutdown-limits.ts";
export type { BusTopology } from "./topology.ts";
export type { RunOptions, Running, StopResult } from "./worker.ts";
