import { random } from "./random.ts";
import { sleep } from "./time.ts";

/** How long to wait between tries: a bound that grows with each failure, and a random part of it. */
export interface Backoff {
  /** Upper bound of the wait after the first failure, in milliseconds. */
  readonly firstMs: number;
  /** Upper bound of every wait, in milliseconds. */
  readonly maxMs: number;
  /** The factor by which the bound grows with each failure. Default 2. */
  readonly factor?: number;
  /**
   * How much of the bound is random: 0 waits the whole bound, 1 waits between zero and the bound. Default 0.5, so
   * that processes that failed together do not retry together.
   */
  readonly jitter?: number;
}

// A larger exponent would overflow, and no bound grows that far.
const MAX_EXPONENT = 60;

/** Returns the wait after `failures` failures in a row, in milliseconds. Less than one failure counts as one. */
export function backoffMs(
  { firstMs, maxMs, factor = 2, jitter = 0.5 }: Backoff,
  failures: number,
  draw: () => number = random,
): number {
  const exponent = Math.min(Math.max(failures, 1) - 1, MAX_EXPONENT);
  const boundMs = Math.min(maxMs, firstMs * factor ** exponent);
  return jitter === 0 ? boundMs : boundMs * (1 - jitter + jitter * draw());
}

export interface FailedTry {
  readonly error: unknown;
  /** The number of failures so far, from 1. */
  readonly failures: number;
  /** The wait before the next try, in milliseconds. */
  readonly retryInMs: number;
}

export interface RetryLimits {
  /** Default: 100 ms, doubling up to 2 s. */
  readonly backoff?: Backoff;
  /** The maximum number of tries. Default: unlimited. */
  readonly maxTries?: number;
  /** Ends the current wait and the retries. The first try is made in any case. */
  readonly signal?: AbortSignal;
  /** Checked before each retry; `false` ends the retries. Default: always `true`. */
  readonly shouldContinue?: () => boolean;
  /** An error for which this returns `false` is thrown at once. Default: every error is retryable. */
  readonly isRetryable?: (error: unknown) => boolean;
  /** Called after each retryable failure. An error that it throws ends the retries and is thrown. */
  readonly onFailure?: (failure: FailedTry) => void;
}

const DEFAULT_BACKOFF: Backoff = { firstMs: 100, maxMs: 2_000 };

/** Retries that end only with success or with an error that is not retryable. */
interface EndlessRetry extends RetryLimits {
  readonly maxTries?: never;
  readonly signal?: never;
  readonly shouldContinue?: never;
}

/**
 * Runs `work` until it succeeds, with growing waits between the tries. Returns undefined if a limit ended the
 * retries before that.
 */
export function retryWithBackoff<T>(work: () => Promise<T>, limits?: EndlessRetry): Promise<T>;
export function retryWithBackoff<T>(work: () => Promise<T>, limits: RetryLimits): Promise<T | undefined>;
export async function retryWithBackoff<T>(
  work: () => Promise<T>,
  limits: RetryLimits = {},
): Promise<T | undefined> {
  const { backoff = DEFAULT_BACKOFF, maxTries = Infinity, signal } = limits;
  for (let failures = 1; ; failures++) {
    try {
      return await work();
    } catch (error) {
      if (limits.isRetryable?.(error) === false) throw error;
      const retryInMs = Math.round(backoffMs(backoff, failures));
      limits.onFailure?.({ error, failures, retryInMs });
      if (failures >= maxTries || !(await sleep(retryInMs, signal))) return undefined;
      if (limits.shouldContinue?.() === false) return undefined;
    }
  }
}
