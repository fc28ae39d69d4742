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
