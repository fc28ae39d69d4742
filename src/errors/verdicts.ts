import { parseDuration, type Duration } from "./duration.ts";
import { SagaboxError, type SagaboxErrorOptions } from "./sagabox-error.ts";

/** A decision of a handler about its message that overrides the retry policy. */
export type Verdict =
  | { readonly kind: "permanent"; readonly reason: string }
  | { readonly kind: "retry-after"; readonly delayMs: number; readonly reason: string }
  | { readonly kind: "ignore"; readonly reason: string }
  | { readonly kind: "refuse"; readonly reason: string };

const brand = Symbol.for("sagabox.verdict");

/** The value a handler throws. It is an Error, so that linters and frameworks accept it. */
export interface VerdictError extends Error {
  readonly [brand]: Verdict;
}

/** The message can never succeed: it is dead-lettered without further attempts. */
export function permanent(reason: string, options: SagaboxErrorOptions = {}): VerdictError {
  return verdictError({ kind: "permanent", reason }, options);
}

/** Retries the message after this delay without counting an attempt. Throws if the delay is not a duration. */
export function retryAfter(delay: Duration | number, reason = "asked to wait"): VerdictError {
  const delayMs = parseDuration(delay);
  if (delayMs === undefined) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      `retryAfter() was given ${JSON.stringify(delay)}. Pass milliseconds, or a string such as "30s" or "5m".`,
    );
  }
  return verdictError({ kind: "retry-after", delayMs, reason }, {});
}

/** Settles the message as handled and rolls back the transaction of the handler. */
export function ignore(reason: string): VerdictError {
  return verdictError({ kind: "ignore", reason }, {});
}

/**
 * Refuses a command for a business reason, such as a declined card. The message is settled as handled, the transaction
 * of the handler is rolled back, and the requester receives the refusal with its reason.
 */
export function refuse(reason: string): VerdictError {
  return verdictError({ kind: "refuse", reason }, {});
}

/** Returns the verdict in a thrown value, from any copy of this package; undefined for ordinary errors. */
export function readVerdict(error: unknown): Verdict | undefined {
  if (typeof error !== "object" || error === null) return undefined;
  return (error as Partial<VerdictError>)[brand];
}

function verdictError(verdict: Verdict, options: SagaboxErrorOptions): VerdictError {
  const error = new Error(verdict.reason, options);
  error.name = "Verdict";
  return Object.defineProperty(error, brand, { value: Object.freeze(verdict) }) as VerdictError;
}
