// The front door: everything a service needs to publish and to handle messages. Transports, test tools and what authors
// of transports need have doors of their own.
export { Bus, createBus, message } from "./app/index.ts";
export type {
  BusTopology,
  BusOptions,
  DrainOptions,
  DrainResult,
  LogOptions,
  PreparedMessage,
  SqlStatement,
  StatementsOptions,
  Readiness,
  RunOptions,
  Running,
  SagaNews,
  StartInput,
  StartOnOptions,
  StopResult,
} from "./app/index.ts";
export type { WorkerPart } from "./options/index.ts";
export type {
  Acting,
  AuditFilter,
  AuditLine,
  AuditOptions,
  Finding as AuditFinding,
  VerifyOptions,
  VerifyReport,
} from "./audit/index.ts";
export { attachment, command, event, isAttachment, isErased, isEncrypted, stream } from "./message/index.ts";
export type {
  AnyCommand,
  AnyContract,
  AnyEvent,
  Attachment,
  AnyStream,
  Contract,
  DataOf,
  Erased,
  GivenInput,
  InputOf,
  Json,
  Message,
  MessageContext,
  Personal,
  Published,
  PublishOptions,
  ReplyInputOf,
  ReplyOf,
  Encrypted,
  WireOf,
} from "./message/index.ts";
export { currentMessageContext, fromCloudEvent, toCloudEvent, toCloudEventJson } from "./message/index.ts";
export type { CloudEvent, CloudEventOptions } from "./message/index.ts";
export type { MessageFacts, MessageState, OutboxOptions } from "./outbox/index.ts";
export { canTransition, nextStates, stateDiagram, transition } from "./outbox/index.ts";
export type {
  BatchContext,
  BatchHandler,
  BatchOptions,
  BusTransaction,
  ConsumerOptions,
  ConsumerStats,
  DeliveredRecord,
  ForeignMessage,
  HandledRecord,
  Handler,
  HandlerContext,
  HandlerOptions,
  Processed,
  Received,
  RecordOutcome,
  Startable,
  StatementHandler,
} from "./inbox/index.ts";
export {
  ignore,
  isSagaboxError,
  NotInTransactionError,
  PayloadError,
  permanent,
  refuse,
  RequestError,
  retryAfter,
  SagaboxError,
  type ErrorCode,
} from "./errors/index.ts";
export { checkFlow, flow, flowDiagram, flowPathDiagram, judgePath } from "./flow/index.ts";
export type {
  PendingReaction,
  Flow,
  FlowFinding,
  FlowPath,
  FlowStatus,
  FlowStep,
  ReactionOptions,
  RecordedEvent,
  UnfinishedOptions,
  WatchOptions,
} from "./flow/index.ts";
export type {
  AttachOptions,
  BlobStore,
  ByteSource,
  ClaimCheckOptions,
  CollectReport,
} from "./claim-check/index.ts";
export type { DeadLetterNotice, NotifyOptions, WebhookOptions } from "./notify/index.ts";
export { kafkaRecords, rabbitmqRecords, sqsRecords } from "./transport/index.ts";
export type {
  KafkaItemIdentifier,
  LambdaKafkaEvent,
  LambdaRabbitmqEvent,
  LambdaRecord,
  LambdaSqsEvent,
} from "./transport/index.ts";
export type { RequestOptions } from "./requests/index.ts";
export type {
  ActionResult,
  CheckFinding,
  CheckReport,
  HistoryLine,
  Incident,
  SagaDetail,
  SagaFilter,
  SagaSummary,
  SagaTarget,
  StepDetail,
  StuckReason,
  StuckSaga,
} from "./admin/index.ts";
export { instanceDiagram, instanceTimeline, replay, saga, sagaDiagram } from "./saga/index.ts";
export type {
  Ctx,
  DrawnInstance,
  Operator,
  Phase,
  RecordedSaga,
  RecordedTurn,
  Replayed,
  ResultOptions,
  ResultTarget,
  RunCtx,
  Saga,
  SagaBusOptions,
  SagaDefinition,
  SagaOptions,
  SagaResult,
  SagaStatus,
  Started,
  StepOptions,
  TxCtx,
  UndoCtx,
  UndoOptions,
  WaitOptions,
} from "./saga/index.ts";
export type {
  CallerTransaction,
  LibraryTransactionOptions,
  Sql,
  TransactionAdapter,
} from "./storage/index.ts";
export type { Observer, Telemetry, TelemetryEvents, Tracing } from "./telemetry/index.ts";
export type { Transport } from "./transport/index.ts";
