import { AuditSealer, type SealResult } from "../../audit/index.ts";
import type { Database } from "../../storage/index.ts";
import { silentObserver } from "../../telemetry/index.ts";

/** Seals now what a worker would seal within a minute. */
export function sealAudit(database: Database, schema: string): Promise<SealResult> {
  return new AuditSealer({ database, schema, observer: silentObserver, sealEveryMs: 60_000 }).seal();
}
