import { readVerdict } from "../errors/index.ts";
import { option, type OptionsFrom, readOptions, type SettingsFrom } from "../options/index.ts";
import {
  classifyFailure,
  type FailureClassifier,
  type FailureKind,
  mayNeverPass,
} from "./classify-failure.ts";
import { backoffMs } from "../runtime/index.ts";

export const retryOptions = {
  /** The maximum number of attempts, including the first. */
  maxAttempts: option.number({ default: 6, min: 1, max: 1_000 }),
  /**
   * Upper bound of the wait after the first failure. The actual wait is random between zero and this bound.
   */
  firstDelay: option.duration({ default: "1s" }),
  /** The factor by which the bound grows with each failure. */
  factor: option.number({ default: 2, min: 1, max: 100 }),
  /** The maximum of the bound. */
  maxDelay: option.duration({ default: "60s" }),
};

/** Options for retries. Defaults for handlers: 6 attempts, "1s" doubling up to "60s"; for the outbox: 10, "2s", "1h". */
export interface RetryOptions extends OptionsFrom<typeof retryOptions> {}

/** Checked settings of a retry policy. */
export type RetryPolicy = SettingsFrom<typeof retryOptions>;

/** Default for sending from the outbox: 10 attempts, 2 s doubling up to 1 h. */
export const outboxRetryPolicy: RetryPolicy = Object.freeze({
  maxAttempts: 10,
  firstDelayMs: 2_000,
  factor: 2,
  maxDelayMs: 3_600_000,
});

/** Default for handlers: 5 retries after the first attempt, 1 s doubling up to 60 s. */
export const consumerRetryPolicy: RetryPolicy = readOptions("retry", retryOptions, {});

/** Checks the user's options and merges them with the defaults. Throws OPTIONS_INVALID. */
export function retryPolicy(where: string, options: RetryOptions, defaults: RetryPolicy): RetryPolicy {
  const { maxAttempts, firstDelayMs, factor, maxDelayMs } = defaults;
  const fallback = { maxAttempts, firstDelay: firstDelayMs, factor, maxDelay: maxDelayMs };
  return readOptions(where, retryOptions, options, { fallback });
}

/**
 * The wait in milliseconds after `attempt` failed attempts. It is random between zero and the bound ("full
 * jitter"), so that messages that failed together are not retried together.
 */
export function retryDelay(policy: RetryPolicy, attempt: number, random: () => number): number {
  const { firstDelayMs: firstMs, maxDelayMs: maxMs, factor } = policy;
  return Math.round(backoffMs({ firstMs, maxMs, factor, jitter: 1 }, attempt, random));
}

/** A classified error. */
export interface Failure {
  readonly kind: FailureKind;
  /** The wait that the handler requested with `retryAfter`, in milliseconds. */
  readonly retryAfterMs?: number;
  /** True for an infrastructure failure that counts as an attempt after too many in a row. */
  readonly mayNeverPass?: boolean;
  readonly reason: string;
}

/** How many conflicts or timeouts in a row, as reported by the server, do not count as attempts. */
export const MAX_FREE_CONFLICTS = 20;

export type RetryDecision =
  /** An attempt with `countsAsAttempt: false` does not count towards the policy's maximum. */
  | { readonly kind: "retry"; readonly delayMs: number; readonly countsAsAttempt: boolean }
  | { readonly kind: "dead"; readonly reason: "permanent" | "attempts exhausted" };

/** Classifies a thrown value. The `ignore` verdict is not a failure; check for it first. */
export function toFailure(error: unknown, userClassifier?: FailureClassifier): Failure {
  const kind = classifyFailure(error, userClassifier);
  const verdict = readVerdict(error);
  if (verdict?.kind === "retry-after") return { kind, retryAfterMs: verdict.delayMs, reason: verdict.reason };
  return {
    kind,
    ...(kind === "infrastructure" && mayNeverPass(error, userClassifier) && { mayNeverPass: true }),
    reason: error instanceof Error ? error.message : `threw something that is not an error (${typeof error})`,
  };
}

/** The attempts of a message so far. */
export interface AttemptHistory {
  /** The number of the attempt that failed; the first is 1. */
  readonly attempt: number;
  /** The number of failures directly before this one that did not count as attempts. */
  readonly uncountedBefore: number;
}

/** Decides whether a failed message is retried, and when, or becomes a dead letter. */
export function decideRetry(
  policy: RetryPolicy,
  { attempt, uncountedBefore }: AttemptHistory,
  failure: Pick<Failure, "kind" | "retryAfterMs" | "mayNeverPass">,
  random: () => number,
): RetryDecision {
  if (failure.kind === "permanent") return { kind: "dead", reason: "permanent" };
  if (failure.retryAfterMs !== undefined)
    return { kind: "retry", delayMs: failure.retryAfterMs, countsAsAttempt: false };
  const isFree = failure.mayNeverPass !== true || uncountedBefore < MAX_FREE_CONFLICTS;
  if (failure.kind === "infrastructure" && isFree)
    return {
      kind: "retry",
      delayMs: retryDelay(policy, attempt + uncountedBefore, random),
      countsAsAttempt: false,
    };
  if (attempt >= policy.maxAttempts) return { kind: "dead", reason: "attempts exhausted" };
  return { kind: "retry", delayMs: retryDelay(policy, attempt, random), countsAsAttempt: true };
}
