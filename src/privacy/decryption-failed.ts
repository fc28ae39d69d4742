import { SagaboxError } from "../errors/index.ts";

/** The one error for everything that cannot be opened: which check failed is nobody's business. */
export function decryptionFailed(): SagaboxError<"PRIVACY_SEAL_BROKEN"> {
  return new SagaboxError(
    "PRIVACY_SEAL_BROKEN",
    "A sealed value cannot be opened: it, or what it is bound to, is not what was sealed.",
  );
}
