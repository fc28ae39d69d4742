// Decides whether, when and how often to retry. Failures have three kinds, because only a message's own
// failures may count as attempts: an outage of the database or broker must not fill the dead letters. All
// functions are pure and take their randomness as a parameter.
export {
  classifyFailure,
  isRaisedByUserCode,
  type FailureClassifier,
  type FailureKind,
} from "./classify-failure.ts";
export {
  decideRetry,
  toFailure,
  MAX_FREE_CONFLICTS,
  type Failure,
  type RetryDecision,
  type AttemptHistory,
} from "./retry-policy.ts";
export {
  consumerRetryPolicy,
  outboxRetryPolicy,
  retryDelay,
  retryPolicy,
  type RetryOptions,
  type RetryPolicy,
} from "./retry-policy.ts";
