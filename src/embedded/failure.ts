import { SagaboxError } from "../errors/index.ts";

export function embeddedFailure(message: string, cause?: unknown): SagaboxError {
  return new SagaboxError("EMBEDDED_POSTGRES_FAILED", message, cause === undefined ? {} : { cause });
}

/** The system's own word for what went wrong ("EACCES"), if there is one. */
export function systemErrorCode(error: unknown): string | undefined {
  if (!(error instanceof Error) || !("code" in error)) return undefined;
  return typeof error.code === "string" ? error.code : undefined;
}
