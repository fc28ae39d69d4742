import type { ErrorCode } from "./catalogue.ts";

// Two copies of the package in one process break instanceof; a registered symbol is shared by both.
const brand = Symbol.for("sagabox.error");

export interface SagaboxErrorOptions {
  readonly cause?: unknown;
}

/** Base class of all errors of this package. The code is stable; the message may change. */
export class SagaboxError<Code extends ErrorCode = ErrorCode> extends Error {
  readonly code: Code;

  constructor(code: Code, message: string, options: SagaboxErrorOptions = {}) {
    super(message, options);
    this.code = code;
  }

  get [brand](): true {
    return true;
  }
}

// On the prototype, so that printing an error shows its code and cause but not its name a second time.
Object.defineProperty(SagaboxError.prototype, "name", {
  value: "SagaboxError",
  writable: true,
  configurable: true,
});

/** Returns true for errors from any copy of this package, with this code if one is passed. */
export function isSagaboxError<Code extends ErrorCode = ErrorCode>(
  error: unknown,
  code?: Code,
): error is SagaboxError<Code> {
  if (typeof error !== "object" || error === null || !(brand in error)) return false;
  return code === undefined || (error as { code?: unknown }).code === code;
}

/** Thrown by publish and start if they receive a pool, or a client without an open transaction. */
export class NotInTransactionError extends SagaboxError<"NOT_IN_TRANSACTION"> {
  constructor(message: string, options: SagaboxErrorOptions = {}) {
    super("NOT_IN_TRANSACTION", message, options);
  }
}

Object.defineProperty(NotInTransactionError.prototype, "name", {
  value: "NotInTransactionError",
  writable: true,
  configurable: true,
});

export type PayloadErrorCode = Extract<ErrorCode, `PAYLOAD_${string}`>;

/** One problem of a payload. It never contains values: they may be personal, and errors are logged. */
export interface PayloadIssue {
  /** Path of the field, such as `lines[3].price`; empty for the payload itself. */
  readonly path: string;
  readonly message: string;
}

interface PayloadErrorOptions extends SagaboxErrorOptions {
  readonly issues?: readonly PayloadIssue[];
}

/** Thrown if data cannot be published, or was received and cannot be read. A retry cannot succeed. */
export class PayloadError extends SagaboxError<PayloadErrorCode> {
  readonly issues: readonly PayloadIssue[];

  constructor(code: PayloadErrorCode, message: string, options: PayloadErrorOptions = {}) {
    super(code, message, "cause" in options ? { cause: options.cause } : {});
    this.issues = options.issues ?? [];
  }
}

Object.defineProperty(PayloadError.prototype, "name", {
  value: "PayloadError",
  writable: true,
  configurable: true,
});

interface Details {
  /** Id of the message that carried the command. */
  readonly requestId: string;
  /** Why the command failed; null if its outcome is unknown. */
  readonly reason?: string;
}

/** Thrown by a request whose command failed, or whose reply did not arrive in time. */
export class RequestError extends SagaboxError<"REQUEST_FAILED" | "REQUEST_TIMEOUT"> {
  readonly requestId: string;
  readonly reason: string | null;

  constructor(code: "REQUEST_FAILED" | "REQUEST_TIMEOUT", message: string, details: Details) {
    super(code, message);
    this.requestId = details.requestId;
    this.reason = details.reason ?? null;
  }
}

Object.defineProperty(RequestError.prototype, "name", {
  value: "RequestError",
  writable: true,
  configurable: true,
});

/** Returns the message of a thrown value, which may be anything. Never throws. */
export function errorText(thrown: unknown): string {
  try {
    return String(thrown instanceof Error ? thrown.message : thrown);
  } catch {
    return "a value without a text was thrown"; // such as an object without a prototype
  }
}

/** Returns the error itself, or wraps a thrown non-error in an Error. */
export function toError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new Error(errorText(thrown));
}

/** Returns the candidate with the smallest edit distance, or undefined if none is close to what was written. */
export function findNearest(written: string, candidates: readonly string[]): string | undefined {
  let best: string | undefined;
  let bestDistance = Math.max(1, Math.floor(written.length / 3)) + 1;
  for (const candidate of candidates) {
    const distance = editDistance(written.toLowerCase(), candidate.toLowerCase());
    if (distance < bestDistance) [best, bestDistance] = [candidate, distance];
  }
  return best;
}

// Swapping two neighbouring characters counts as one edit (Damerau-Levenshtein).
function editDistance(a: string, b: string): number {
  let before: number[] = [];
  let previous = Array.from({ length: b.length + 1 }, (_, column) => column);
  for (let row = 1; row <= a.length; row++) {
    const current = [row];
    for (let column = 1; column <= b.length; column++) {
      const change = (previous[column - 1] ?? 0) + (a[row - 1] === b[column - 1] ? 0 : 1);
      const swapped = row > 1 && column > 1 && a[row - 1] === b[column - 2] && a[row - 2] === b[column - 1];
      const swap = swapped ? (before[column - 2] ?? 0) + 1 : change;
      current.push(Math.min(change, swap, (previous[column] ?? 0) + 1, (current[column - 1] ?? 0) + 1));
    }
    [before, previous] = [previous, current];
  }
  return previous[b.length] ?? 0;
}
