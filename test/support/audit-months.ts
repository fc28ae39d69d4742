import { maintainMonths } from "../../src/audit/index.ts";
import { sealRound } from "../../src/audit/sealer.ts";
import { auditStatements } from "../../src/audit/statements.ts";
import { defineStatement } from "../../src/storage/index.ts";
import { auditHarness, type AuditHarnessOptions } from "./audit.ts";

const DAY_MS = 86_400_000;
const MONTHS = ["2025-01-01", "2025-02-01", "2025-03-01"];

/** Three months of long ago, each with four lines of a saga and one action, sealed at their end. */
export async function auditMonths(options: AuditHarnessOptions = {}) {
  const harness = await auditHarness(options);
  const { pool, database } = harness;
  for (const month of MONTHS) {
    for (const table of ["saga_audit_log", "audit_log", "audit_seal"]) {
      await pool.query(
        `create table sagabox.${table}_${month.slice(0, 7).replace("-", "")} partition of sagabox.${table}
         for values from ('${month}T00:00:00Z') to (timestamptz '${month}T00:00:00Z' + interval '1 month')`,
      );
    }
    await pool.query(
      `insert into sagabox.saga_audit_log (at, saga_id, version, event_type, cause)
       select timestamptz '${month} 12:00Z', 'saga-${month}', n, 'noted', 'x' from generate_series(1, 4) as n`,
    );
    await pool.query(
      `insert into sagabox.audit_log (at, actor, action, target_kind, outcome)
       values ('${month} 12:00Z', 'ada', 'test.done', 'test', 'done')`,
    );
    await harness.final();
    const sql = auditStatements('"sagabox"');
    const then = sql.head.text.replace("clock_timestamp()", `timestamptz '${month} 13:00Z'`);
    const tx = await database.begin();
    await sealRound(tx, { ...sql, head: defineStatement("test.head", then) }, 100);
    await tx.commit();
  }
  const partitions = async (): Promise<string[]> => {
    const { rows } = await pool.query<{ name: string }>(
      "select relname as name from pg_class where relkind = 'r' and relname ~ 'audit.*_2025[0-9]{2}$' order by 1",
    );
    return rows.map(({ name }) => name);
  };
  const tidy = () =>
    maintainMonths(database, "sagabox", { retentionMs: 400 * DAY_MS, observer: harness.observer });
  return { ...harness, partitions, tidy };
}
