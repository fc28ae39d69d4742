// Errors and verdicts. Every error of this package is a `SagaboxError` whose code is listed in the catalogue and
// explained in docs/reference/errors.md. A handler throws a verdict to override the retry policy. This room imports
// nothing, so every other room may use it.
export { catalogue, type ErrorCode } from "./catalogue.ts";
export { errorText, findNearest, toError } from "./sagabox-error.ts";
export { parseDuration, type Duration } from "./duration.ts";
export {
  isSagaboxError,
  NotInTransactionError,
  PayloadError,
  RequestError,
  SagaboxError,
  type PayloadErrorCode,
  type PayloadIssue,
  type SagaboxErrorOptions,
} from "./sagabox-error.ts";
export { ignore, permanent, refuse, retryAfter, readVerdict } from "./verdicts.ts";
export type { Verdict, VerdictError } from "./verdicts.ts";
export { auditFlags, quoteForShell } from "./suggested-command.ts";
