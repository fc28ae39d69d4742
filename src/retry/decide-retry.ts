import { readVerdict } from "../errors/index.ts";
import {
  classifyFailure,
  mayNeverPass,
  type FailureClassifier,
  type FailureKind,
} from "./classify-failure.ts";
import { retryDelay, type RetryPolicy } from "./retry-policy.ts";

/** A thrown value, sorted. */
export interface Failure {
  readonly kind: FailureKind;
  /** The wait the handler asked for, if it did. */
  readonly retryAfterMs?: number;
  /** An infrastructure failure that counts as an attempt once it has happened too often in a row. */
  readonly mayNeverPass?: boolean;
  readonly reason: string;
}

/** How often in a row a conflict or timeout that the server reports is free of charge. */
export const MAX_FREE_CONFLICTS = 20;

export type RetryDecision =
  /** An attempt that is not charged does not count towards the policy's maximum. */
  | { readonly kind: "retry"; readonly delayMs: number; readonly charged: boolean }
  | { readonly kind: "dead"; readonly reason: "permanent" | "attempts exhausted" };

/** Sorts a thrown value. Handlers that say `ignore` have not failed; look for that verdict first. */
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

/** What a message has been through. */
export interface AttemptHistory {
  /** Which attempt has failed; the first is 1. */
  readonly attempt: number;
  /** How often it failed right before without being charged, while `attempt` stood still. */
  readonly unchargedBefore: number;
}

/** What becomes of a message after a failure. */
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
