// The outbox: a message is written in the caller's transaction and exists if and only if that commits. A
// relay then sends it through the transport, in order per key, and settles it; the process that wrote it may
// send it first. Failed messages are retried, and those that cannot succeed become dead letters.
export { compose, type Compose, type ComposeContext, type Outgoing, type Pack } from "./outgoing.ts";
export { outboxSettings, type OutboxOptions, type OutboxSettings, type OverflowPolicy } from "./options.ts";
export {
  canTransition,
  isFinal,
  messageStates,
  moves,
  nextStates,
  stateDiagram,
  transition,
  type MessageFacts,
  type MessageState,
  type Move,
  type MoveName,
} from "./message-state.ts";
export { canLease, OutboxWriter } from "./writer.ts";
export { settleStatements } from "./statements.ts";
export { Destinations, type DestinationState } from "./destinations.ts";
export { Flusher } from "./optimistic-sender.ts";
export { OptimisticSender } from "./optimistic-sender.ts";
export { PollingRelay, type PollingRelayOptions } from "./polling-relay.ts";
export { toPublished, TransactionScope, type ScopeParts } from "./transaction-scope.ts";
export { Admission } from "./upkeep/admission.ts";
export { measureBacklog, measureDeadLetters, measureQueue, type BacklogSize } from "./upkeep/depths.ts";
export { DepthWatch } from "./upkeep/depth-watch.ts";
export { ensurePartitions, History } from "./upkeep/history.ts";
export {
  countRepublish,
  republish,
  type RepublishCursor,
  type RepublishOptions,
  type RepublishResult,
} from "./upkeep/republish.ts";
export { ScheduleMover } from "./upkeep/schedule.ts";
