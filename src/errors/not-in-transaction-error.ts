import { SagaboxError, type SagaboxErrorOptions } from "./sagabox-error.ts";

/** Thrown by publish and start when they are given a pool, or a client whose transaction is not open, or not any more. */
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
