import { milliseconds, rejectUnknownKeys, wholeNumber, type Duration } from "../options/index.ts";

/** Checked settings of a retry policy. */
export interface RetryPolicy {
  /** How often something is tried in all, the first time included. */
  readonly maxAttempts: number;
  readonly firstDelayMs: number;
  readonly factor: number;
  readonly maxDelayMs: number;
}

/** What a user may say about retries. */
export interface RetryOptions {
  /** How often it is tried in all, the first time included. 1 to 1,000. */
  readonly maxAttempts?: number;
  /** Upper bound of the wait after the first failure; the actual wait is drawn between zero and this. */
  readonly firstDelay?: Duration | number;
  /** By how much the bound grows with each failure. 1 to 100. */
  readonly factor?: number;
  /** Where the bound stops growing. */
  readonly maxDelay?: Duration | number;
}

/** Sending from the outbox: 10 attempts, 2 s doubling up to 1 h. */
export const outboxRetryPolicy: RetryPolicy = Object.freeze({
  maxAttempts: 10,
  firstDelayMs: 2_000,
  factor: 2,
  maxDelayMs: 3_600_000,
});

/** Handling: 5 retries after the first attempt, 1 s doubling up to 60 s. */
export const consumerRetryPolicy: RetryPolicy = Object.freeze({
  maxAttempts: 6,
  firstDelayMs: 1_000,
  factor: 2,
  maxDelayMs: 60_000,
});

/** The user's wishes on top of the defaults of the place. */
export function retryPolicy(where: string, options: RetryOptions, defaults: RetryPolicy): RetryPolicy {
  rejectUnknownKeys(where, options, ["maxAttempts", "firstDelay", "factor", "maxDelay"]);
  return Object.freeze({
    maxAttempts: wholeNumber(`${where}.maxAttempts`, options.maxAttempts ?? defaults.maxAttempts, {
      min: 1,
      max: 1_000,
    }),
    firstDelayMs: milliseconds(`${where}.firstDelay`, options.firstDelay ?? defaults.firstDelayMs),
    factor: wholeNumber(`${where}.factor`, options.factor ?? defaults.factor, { min: 1, max: 100 }),
    maxDelayMs: milliseconds(`${where}.maxDelay`, options.maxDelay ?? defaults.maxDelayMs),
  });
}

/**
 * How long to wait after the given number of failed attempts. The whole span is drawn from ("full jitter"), so that
 * what failed together does not come back together.
 */
export function retryDelay(policy: RetryPolicy, attempt: number, random: () => number): number {
  const bound = Math.min(
    policy.maxDelayMs,
    policy.firstDelayMs * policy.factor ** (Math.max(attempt, 1) - 1),
  );
  return Math.floor(random() * (bound + 1));
}
