// Who did what, when, why, and what changed: the transitions of sagas and the decisions of people, in two append-only
// logs by the month. Whoever does something writes its line in the same transaction and waits for nobody; a background
// job seals what is final into one chain of hashes, and a verifier names the row when something is not as it was.
export type { AuditEntry, AuditOutcome, By } from "./entry.ts";
export type { Finding } from "./findings.ts";
export { listAudit, type AuditFilter, type AuditLine, type SagaPart } from "./list.ts";
export {
  readActing,
  readAuditSettings,
  type Acting,
  type AuditOptions,
  type AuditSettings,
} from "./options.ts";
export { AuditSealer, type SealResult, type SealerOptions } from "./sealer.ts";
export { maintainMonths, type TidyMonthsOptions } from "./maintain-months.ts";
export { verifyAudit, type VerifyOptions, type VerifyProgress, type VerifyReport } from "./verify.ts";
export { AuditWatch, type AuditWatchOptions } from "./watch.ts";
export { AuditWriter, type Details } from "./writer.ts";
