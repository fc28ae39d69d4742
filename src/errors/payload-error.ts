import type { ErrorCode } from "./catalogue.ts";
import { SagaboxError, type SagaboxErrorOptions } from "./sagabox-error.ts";

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
