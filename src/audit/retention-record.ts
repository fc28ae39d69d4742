import type { Queryable } from "../storage/index.ts";
import { chainBegin, type Link } from "./findings.ts";
import type { AuditStatements, LogName } from "./statements.ts";

/** What the newest line about dropped months says: the log itself accounts for what is not there any more. */
export interface RetentionRecord {
  /** Months of which seals are left, but no rows. */
  readonly dropped: readonly { readonly log: LogName; readonly month: string }[];
  /** The last seal that was dropped. The chain goes on from here. */
  readonly anchor: Link;
}

export async function retentionRecord(tx: Queryable, sql: AuditStatements): Promise<RetentionRecord> {
  const [row] = (await tx.run<{ after: string | null }>(sql.retentionRecord)).rows;
  if (row === undefined || row.after === null) return { dropped: [], anchor: chainBegin };
  return JSON.parse(row.after) as RetentionRecord;
}

export function isDropped(
  { dropped }: RetentionRecord,
  { log, month }: { log: string; month: string },
): boolean {
  return dropped.some((one) => one.log === log && one.month === month);
}
