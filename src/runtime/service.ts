/**
 * The start/stop contract of loops, relays, consumers and the bus. Starting twice, stopping twice and
 * stopping before the start are harmless, and a stopped service can be started again. `stop` resolves when
 * the service no longer runs anything.
 */
export interface Service {
  start(): Promise<void>;
  stop(): Promise<void>;
}
