import { SagaboxError } from "../errors/index.ts";

export function embeddedFailure(message: string, cause?: unknown): SagaboxError {
  return new SagaboxError("EMBEDDED_POSTGRES_FAILED", message, cause === undefined ? {} : { cause });
}

/** Returns the error code of the operating system, such as "EACCES", if the error has one. */
export function systemErrorCode(error: unknown): string | undefined {
  if (!(error instanceof Error) || !("code" in error)) return undefined;
  return typeof error.code === "string" ? error.code : undefined;
}
