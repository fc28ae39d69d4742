// Where a message goes that nobody could send or handle: kept whole, with the reason, until a person replays it
// under its own id, discards it, or its time is over. Nothing leaves this room by itself.
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
export { buryMessage, burialParams, type Burial } from "./bury.ts";
export { assertId, listDeadLetters, notFound, readDeadLetter, showDeadLetter } from "./search.ts";
export type { DeadLetterDetail, DeadLetterFilter, DeadLetterSummary } from "./search.ts";
export { closingDetails, dataHash, discardDeadLetter, replayDeadLetter } from "./replay.ts";
export type { Edit, ReplayedDeadLetter } from "./replay.ts";
export {
  defaultDeadLetterTtlMs,
  forgetDeadLetters,
  type ForgetOptions,
  type ForgetResult,
} from "./cleanup.ts";
