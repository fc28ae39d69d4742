/**
 * What everything that lives obeys: loops, relays, consumers, the bus itself.
 * Starting twice, stopping twice and stopping before the start are all harmless, and a stopped service
 * may be started again. `stop` resolves when nothing of the service runs any more.
 */
export interface Service {
  start(): Promise<void>;
  stop(): Promise<void>;
}
