import { SagaboxError } from "./sagabox-error.ts";

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
