// Handles each message once per consumer: the dedupe row, the handler's writes and its published messages commit in one
// transaction, and the acknowledgement follows. A consumer handles different keys concurrently and one key in order. It
// retries temporary failures, dead-letters others, and detects messages that kill the process. `Inbox` can be used alone.
export { inboxEngine, type InboxEngine, type InboxEngineOptions } from "./engine.ts";
export type {
  BatchContext,
  BatchHandler,
  BusTransaction,
  Handler,
  HandlerContext,
  HandlerResult,
  OpenScope,
  OutgoingScope,
  PublishInHandler,
  Received,
  Startable,
  Started,
  StatementHandler,
} from "./handler.ts";
export type { BatchOptions, ConsumerOptions, HandlerOptions } from "./options.ts";
export { HandlerRegistry, type ConsumerDefinition, type Registration } from "./registry.ts";
export {
  RecordReceiver,
  type DeliveredRecord,
  type HandledRecord,
  type RecordOutcome,
} from "./record-receiver.ts";
export { Consumer, type ConsumerParts } from "./consumer.ts";
export { CrashLedger, type CrashLedgerOptions, type Lease } from "./crash-ledger.ts";
export {
  Inbox,
  inboxStats,
  type ConsumerStats,
  type ForeignMessage,
  type InboxOptions,
  type Processed,
} from "./inbox.ts";
export { receiveOnce, type Outcome, type Receipt } from "./receive-once.ts";
export { inboxStatements } from "./statements.ts";
export { forgetInbox, inboxRetentionMs } from "./janitor.ts";
export type { ForgetInboxOptions, InboxRetentionOptions } from "./janitor.ts";
export {
  LagWatch,
  type LagWatchOptions,
  MAX_LAG_AGE_MS,
  readStoredLags,
  type StoredLags,
} from "./lag-watch.ts";
