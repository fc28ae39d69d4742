import { option, readOptions, type OptionsFrom, type SettingsFrom } from "../options/index.ts";
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
