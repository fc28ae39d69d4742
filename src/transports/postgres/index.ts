// PostgreSQL as the transport: no broker to run. A topic fans out to its consumer groups as narrow deliveries that
// refer to the one stored message. Members of a group share its lanes, so order per key is kept while they compete.
// If the outbox is in the same database, the hop from outbox to queue is one transaction.
export { postgres, PostgresTransport } from "./postgres-transport.ts";
export { retireGroup, type RetiredGroup } from "./postgres-transport.ts";
export type { ParkedMessage, ParkedKeys } from "./parked-keys.ts";
export type { PostgresTransportOptions } from "./options.ts";
export { measureQueueLags } from "./lag.ts";
