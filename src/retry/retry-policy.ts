import { milliseconds, rejectUnknownKeys, wholeNumber, type Duration } from "../options/index.ts";
import { backoffMs } from "../runtime/index.ts";

/** Checked settings of a retry policy. */
export interface RetryPolicy {
  /** The maximum number of attempts, including the first. */
  readonly maxAttempts: number;
  readonly firstDelayMs: number;
  readonly factor: number;
  readonly maxDelayMs: number;
}

/** Options for retries. */
export interface RetryOptions {
  /** The maximum number of attempts, including the first. 1 to 1,000. */
  readonly maxAttempts?: number;
  /**
   * Upper bound of the wait after the first failure. The actual wait is random between zero and this bound.
   */
  readonly firstDelay?: Duration | number;
  /** The factor by which the bound grows with each failure. 1 to 100. */
  readonly factor?: number;
  /** The maximum of the bound. */
  readonly maxDelay?: Duration | number;
}

/** Default for sending from the outbox: 10 attempts, 2 s doubling up to 1 h. */
export const outboxRetryPolicy: RetryPolicy = Object.freeze({
  maxAttempts: 10,
  firstDelayMs: 2_000,
  factor: 2,
  maxDelayMs: 3_600_000,
});

/** Default for handlers: 5 retries after the first attempt, 1 s doubling up to 60 s. */
export const consumerRetryPolicy: RetryPolicy = Object.freeze({
  maxAttempts: 6,
  firstDelayMs: 1_000,
  factor: 2,
  maxDelayMs: 60_000,
});

/** Checks the user's options and merges them with the defaults. Throws OPTIONS_INVALID. */
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
 * The wait in milliseconds after `attempt` failed attempts. It is random between zero and the bound ("full
 * jitter"), so that messages that failed together are not retried together.
 */
export function retryDelay(policy: RetryPolicy, attempt: number, random: () => number): number {
  const { firstDelayMs: firstMs, maxDelayMs: maxMs, factor } = policy;
  return Math.round(backoffMs({ firstMs, maxMs, factor, jitter: 1 }, attempt, random));
}
