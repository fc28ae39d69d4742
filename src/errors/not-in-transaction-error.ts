import { SagaboxError, type SagaboxErrorOptions } from "./sagabox-error.ts";

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
