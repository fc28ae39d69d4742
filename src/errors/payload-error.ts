import type { ErrorCode } from "./catalogue.ts";
import { SagaboxError, type SagaboxErrorOptions } from "./sagabox-error.ts";

export type PayloadErrorCode = Extract<ErrorCode, `PAYLOAD_${string}`>;

/** One complaint about a payload. Values never appear here: they may be personal, and errors are logged. */
export interface PayloadIssue {
  /** Where, e.g. `lines[3].price`; empty for the payload itself. */
  readonly path: string;
  readonly message: string;
}

interface PayloadErrorOptions extends SagaboxErrorOptions {
  readonly issues?: readonly PayloadIssue[];
}

/** Thrown when data cannot be published, or was received and cannot be read. Trying again cannot help. */
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
