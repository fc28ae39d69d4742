// Operator actions on a running system, one function each, grouped by noun. The bus, the command line and the dashboard
// call them. Reads need only the database. Changes need an actor and a reason, are checked against the locked row, and
// are recorded in the audit log.
export { pgDatabase, type Database, type PgPool } from "../storage/index.ts";
export { checkSagas, type CheckFinding, type CheckOptions, type CheckReport } from "./sagas/check-sagas.ts";
export { verifyConservation, type VerifyConservationOptions } from "./conservation/verify.ts";
export type { ConservationReport, ConservationVerdict } from "./conservation/verify.ts";
export type { ConservationFinding } from "./conservation/findings.ts";
export { ConservationWatch } from "./conservation/watch.ts";
export {
  listAudit,
  sealAudit,
  verifyAudit,
  type AuditFilter,
  type AuditLine,
  type VerifyProgress,
  type VerifyReport,
} from "../audit/index.ts";
export { readKeyRingFromEnvironment, type Erasure, type ErasureReport } from "../privacy/index.ts";
export { readSagaKeys, type KeyRingSource } from "./sagas/saga-admin.ts";
export { migrateSchema } from "./admin-database.ts";
export { buryLiveMessage, type BuriedMessage, type BuryOptions } from "./dead-letters/dead-letter-actions.ts";
export {
  editDeadLetter,
  planEdit,
  type EditOptions,
  type EditPlan,
} from "./dead-letters/dead-letter-actions.ts";
export {
  discardDeadLetters,
  type DiscardResult,
  type DiscardOptions,
} from "./dead-letters/dead-letter-actions.ts";
export {
  listDeadLetterGroups,
  type GroupFilter,
  type DeadLetterGroup,
  type DeadLetterGroups,
} from "./dead-letters/list-dead-letters.ts";
export { createDeadLetterAdmin, type DeadLetterAdmin } from "./dead-letters/dead-letter-admin.ts";
export { discardAndWake, findDeadLetters, replayAndWake } from "./dead-letters/dead-letter-actions.ts";
export type { DeadLetterFilter } from "../dead-letter/index.ts";
export type { ReplayFilter, ReplayProgress, StagedReplayOptions } from "./dead-letters/replay-options.ts";
export { explainWait } from "./dead-letters/dead-letter-admin.ts";
export { viewDeadLetter, type DeadLetterView } from "./dead-letters/list-dead-letters.ts";
export {
  planReplay,
  replayInStages,
  type GroupReport,
  type ReplayPlan,
  type ReplayReport,
} from "./dead-letters/staged-replay.ts";
export { examine, type Examination, type ExamineOptions } from "./doctor/examine.ts";
export type { Diagnosis, Severity } from "./doctor/diagnosis.ts";
export {
  explain,
  type ExplainOptions,
  type ExplainTarget,
  type Findings,
  type FoundMoment,
  type Meaning,
  type SagaExplanation,
} from "./explain/explain.ts";
export type { NextStep } from "./explain/judge-saga.ts";
export { explainMessage, type Explanation } from "./explain/explain-message.ts";
export { findUnfinishedPaths, showFlow, type FlowView } from "./flows/flow-paths.ts";
export { stepFailureText } from "./sagas/list-sagas.ts";
export { listIncidents, type Incident, type IncidentFilter } from "./sagas/list-sagas.ts";
export { createSagaAdmin, type SagaAdmin } from "./sagas/saga-admin.ts";
export {
  cancelSaga,
  compensateSaga,
  retryStep,
  settleStep,
  skipStep,
  type ActionResult,
  type StepAction,
} from "./sagas/saga-actions.ts";
export { readSagaHistory, type HistoryLine, type HistoryOptions } from "./sagas/show-saga.ts";
export { listSagas, type SagaFilter } from "./sagas/list-sagas.ts";
export { showSaga, type SagaDetail, type StepDetail } from "./sagas/show-saga.ts";
export type { SagaSummary } from "./sagas/list-sagas.ts";
export { signalSaga, type SagaTarget, type SignalOptions } from "./sagas/saga-actions.ts";
export { findStuckSagas, type StuckOptions, type StuckReason, type StuckSaga } from "./sagas/list-sagas.ts";
export { tune, tuneConnections, type TuneOptions, type TuneReport } from "./tune/tune.ts";
export type { Handling, Measurement, Proposal } from "./tune/propose.ts";
export { assertRights } from "./roles/assert-rights.ts";
export { type Extent, type Extra } from "./roles/grant.ts";
export { roleNames, roles, type RoleName } from "./roles/roles.ts";
export { rolesSql } from "./roles/roles-sql.ts";
export { waitingText } from "./overview/consumer-lag.ts";
export { readOverview, type Overview } from "./overview/overview.ts";
export { ageText } from "./overview/unread-lanes.ts";
export { countText } from "./overview/judge-overview.ts";
export { archiveOutbox, planArchive, type ArchivePlan, type ArchiveResult } from "./outbox/outbox-actions.ts";
export { listOutbox, outboxStates, type OutboxFilter, type WaitingMessage } from "./outbox/outbox-actions.ts";
export { outboxStats, type OutboxStats } from "./outbox/outbox-actions.ts";
export { retryNow, type RetriedMessage } from "./outbox/outbox-actions.ts";
export { planRepublish, republishWindow, type RepublishPlan } from "./outbox/outbox-actions.ts";
export { cleanInbox, planInboxCleaning, type InboxPlan } from "./consumers/consumer-actions.ts";
export { listConsumerNames } from "./consumers/list-consumers.ts";
export { planRetirement, retireConsumer, type RetirePlan } from "./consumers/consumer-actions.ts";
export {
  handledStats,
  listHandled,
  listHandlersFor,
  type HandledMessage,
  type HandledFilter,
} from "./consumers/list-consumers.ts";
