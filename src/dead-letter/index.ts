// Dead letters: messages that could not be sent or handled. They are stored unchanged with the failure until an operator
// replays them (under the original message id), discards them, or their retention ends. Nothing is replayed automatically.
export { describeFailure, type DeadLetterReason, type FailureDescription } from "./describe-failure.ts";
export { deadLetterStore, type DeadLetter, type DeadLetterStore } from "./dead-letter.ts";
export { toConditions, filterKeys, type Conditions, type DeadLetterCriteria } from "./filter.ts";
export {
  deadLetterStatements,
  deadLettersWhere,
  type Condition,
  type DeadLetterStatements,
} from "./statements.ts";
export {
  failureLabel,
  computeFingerprint,
  isSameFailure,
  normalizeError,
  type Failure,
} from "./fingerprint.ts";
export {
  buryMessage,
  burialParams,
  defaultDeadLetterTtlMs,
  forgetDeadLetters,
  type Burial,
  type ForgetOptions,
  type ForgetResult,
} from "./bury.ts";
export { assertId, listDeadLetters, notFound, readDeadLetter, showDeadLetter } from "./search.ts";
export type { DeadLetterDetail, DeadLetterFilter, DeadLetterSummary } from "./search.ts";
export { dataHash, discardDeadLetter, replayDeadLetter, replayDeadLetters, toAuditEntry } from "./replay.ts";
export type { ClosedRow, Edit, ReplayCandidate, ReplayedDeadLetter, ReplayedRow } from "./replay.ts";
