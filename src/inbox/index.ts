// Receiving exactly once in effect: the dedupe row, the handler's writes and what it publishes are one transaction;
// the acknowledgement comes last. Consumers run keys side by side and one key in series, retry what may get better,
// bury what cannot, and find out which message kills the process. Anyone's own loop can use the inbox alone.
export { inboxEngine, type InboxEngine, type InboxEngineOptions } from "./engine.ts";
export type {
  BatchContext,
  BatchHandler,
  Handler,
  HandlerContext,
  HandlerResult,
  OpenScope,
  OutgoingOptions,
  OutgoingScope,
  PublishInHandler,
  Received,
  StatementHandler,
} from "./handler.ts";
export type { BatchOptions, ConsumerOptions, HandlerOptions } from "./options.ts";
export { HandlerRegistry, type ConsumerDefinition, type Registration } from "./registry.ts";
export { Consumer, type ConsumerParts } from "./consumer.ts";
export { CrashLedger, type CrashLedgerOptions, type Lease } from "./crash-ledger.ts";
export { Inbox, type ForeignMessage, type InboxOptions, type Processed } from "./inbox.ts";
export { receiveOnce, type Outcome, type Receipt } from "./receive-once.ts";
export { inboxStatements } from "./statements.ts";
export { inboxStats, type ConsumerStats } from "./stats.ts";
export { forgetInbox, inboxRetentionMs } from "./janitor.ts";
export type { ForgetInboxOptions, InboxRetentionOptions } from "./janitor.ts";
