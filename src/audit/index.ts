// The audit log: who did what, when, why, and what changed. Saga transitions and operator actions are stored in two
// append-only tables, partitioned by month. An entry is written in the transaction of the action, without any lock. A
// background job seals committed rows into one hash chain, and the verifier names each row that was changed since.
export type { AuditEntry, AuditOutcome, By } from "./entry.ts";
export type { Finding } from "./findings.ts";
export { listAudit, type AuditFilter, type AuditLine, type SagaPart } from "./list.ts";
export {
  readActing,
  readAuditSettings,
  type Acting,
  type AuditOptions,
  type AuditSettings,
} from "./entry.ts";
export { AuditSealer, sealAudit, type SealResult, type SealerOptions } from "./sealer.ts";
export { maintainMonths, type TidyMonthsOptions } from "./maintain-months.ts";
export { verifyAudit, type VerifyOptions, type VerifyProgress, type VerifyReport } from "./verify.ts";
export { AuditWatch, type AuditWatchOptions } from "./watch.ts";
export { AuditWriter, type Details } from "./writer.ts";
