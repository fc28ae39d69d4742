import { parseDuration, type Duration } from "./duration.ts";
import { SagaboxError, type SagaboxErrorOptions } from "./sagabox-error.ts";

/** What a handler may say about its message when it knows better than the retry policy. */
export type Verdict =
  | { readonly kind: "permanent"; readonly reason: string }
  | { readonly kind: "retry-after"; readonly delayMs: number; readonly reason: string }
  | { readonly kind: "ignore"; readonly reason: string }
  | { readonly kind: "refuse"; readonly reason: string };

const brand = Symbol.for("sagabox.verdict");

/** The thing to throw. It is an Error so that stacks, linters and frameworks on the way treat it well. */
export interface VerdictError extends Error {
  readonly [brand]: Verdict;
}

/** The message can never succeed: it goes to the dead letters at once. */
export function permanent(reason: string, options: SagaboxErrorOptions = {}): VerdictError {
  return verdictError({ kind: "permanent", reason }, options);
}

/** Not now: the message is tried again after this time, and no attempt is charged. */
export function retryAfter(delay: Duration | number, reason = "asked to wait"): VerdictError {
  const delayMs = parseDuration(delay);
  if (delayMs === undefined) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      `retryAfter() was given ${JSON.stringify(delay)}. Pass milliseconds, or a text such as "30s" or "5m".`,
    );
  }
  return verdictError({ kind: "retry-after", delayMs, reason }, {});
}

/** The message is settled as handled; what the handler wrote in its transaction is rolled back. */
export function ignore(reason: string): VerdictError {
  return verdictError({ kind: "ignore", reason }, {});
}

/**
 * The answer is no, for reasons of the business: the card is declined, the shelf is empty. The message is settled as
 * handled, what the handler wrote is rolled back, and whoever asked for a reply hears that it was refused and why.
 */
export function refuse(reason: string): VerdictError {
  return verdictError({ kind: "refuse", reason }, {});
}

/** The verdict inside a thrown value, from any copy of this package; undefined for ordinary errors. */
export function readVerdict(error: unknown): Verdict | undefined {
  if (typeof error !== "object" || error === null) return undefined;
  return (error as Partial<VerdictError>)[brand];
}

function verdictError(verdict: Verdict, options: SagaboxErrorOptions): VerdictError {
  const error = new Error(verdict.reason, options);
  error.name = "Verdict";
  return Object.defineProperty(error, brand, { value: Object.freeze(verdict) }) as VerdictError;
}
