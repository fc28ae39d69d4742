// Whether, when and how often something is tried again. Failures are sorted into three kinds, because only the
// message's own failures may cost it an attempt: a database or broker that is away must never fill the dead letters.
// Everything here is pure; randomness is handed in.
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
} from "./decide-retry.ts";
export {
  consumerRetryPolicy,
  outboxRetryPolicy,
  retryDelay,
  retryPolicy,
  type RetryOptions,
  type RetryPolicy,
} from "./retry-policy.ts";
