import { readVerdict } from "../errors/index.ts";
import {
  classifyFailure,
  mayNeverPass,
  type FailureClassifier,
  type FailureKind,
} from "./classify-failure.ts";
import { retryDelay, type RetryPolicy } from "./retry-policy.ts";

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
  /** An attempt with `charged: false` does not count towards the policy's maximum. */
  | { readonly kind: "retry"; readonly delayMs: number; readonly charged: boolean }
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
  readonly unchargedBefore: number;
}

/** Decides whether a failed message is retried, and when, or becomes a dead letter. */
export function decideRetry(
  policy: RetryPolicy,
  { attempt, unchargedBefore }: AttemptHistory,
  failure: Pick<Failure, "kind" | "retryAfterMs" | "mayNeverPass">,
  random: () => number,
): RetryDecision {
  if (failure.kind === "permanent") return { kind: "dead", reason: "permanent" };
  if (failure.retryAfterMs !== undefined)
    return { kind: "retry", delayMs: failure.retryAfterMs, charged: false };
  const isFree = failure.mayNeverPass !== true || unchargedBefore < MAX_FREE_CONFLICTS;
  if (failure.kind === "infrastructure" && isFree)
    return { kind: "retry", delayMs: retryDelay(policy, attempt + unchargedBefore, random), charged: false };
  if (attempt >= policy.maxAttempts) return { kind: "dead", reason: "attempts exhausted" };
  return { kind: "retry", delayMs: retryDelay(policy, attempt, random), charged: true };
}
