import type pg from "pg";
import {
  AuditSealer,
  AuditWriter,
  verifyAudit,
  type VerifyOptions,
  maintainMonths,
} from "../../src/audit/index.ts";
import { sealRound } from "../../src/audit/sealer.ts";
import { auditStatements } from "../../src/audit/statements.ts";
import { pgDatabase, type Database, defineStatement } from "../../src/storage/index.ts";
import { temporaryDatabase, type TemporaryDatabase } from "./database.ts";
import { RecordingObserver } from "./recording-observer.ts";
import { until } from "./relays.ts";

export interface AuditHarnessOptions {
  readonly batchSize?: number;
  readonly max?: number;
  /** A migrated database that is there already. Default: one of its own. */
  readonly place?: Pick<TemporaryDatabase, "pool" | "url">;
}

/** A migrated database, and what tests of the audit log ask of it. */
export async function auditHarness(options: AuditHarnessOptions = {}) {
  const { pool, url } =
    options.place ?? (await temporaryDatabase({ migrated: true, max: options.max ?? 10 }));
  const database: Database = pgDatabase(pool);
  const observer = new RecordingObserver();
  const sealer = new AuditSealer({
    database,
    schema: "sagabox",
    observer,
    sealEveryMs: 50,
    ...(options.batchSize === undefined ? {} : { batchSize: options.batchSize }),
  });
  const audit = new AuditWriter("sagabox");
  // Other tests share the server, and a transaction of theirs that runs keeps our rows from being final.
  const final = (): Promise<void> =>
    until(async () => {
      const { rows } = await pool.query<{ final: boolean }>(
        `select not exists (
           select 1 from (select xid from sagabox.saga_audit_log union all select xid from sagabox.audit_log) as row
            where row.xid >= pg_snapshot_xmin(pg_current_snapshot())
              and row.xid < pg_snapshot_xmax(pg_current_snapshot())) as final`,
      );
      return rows[0]?.final === true;
    }, 20_000);
  return {
    pool,
    url,
    final,
    /** Seals in one go all that was committed. */
    seal: async () => {
      await final();
      return sealer.seal();
    },
    database,
    observer,
    sealer,
    audit,
    verify: (more: VerifyOptions = {}) => verifyAudit(database, "sagabox", more),
    /** Lines of a saga, each in a transaction of its own. */
    lines: async (count: number, saga = "s-1") => {
      for (let version = 1; version <= count; version += 1) await line(pool, saga, version);
    },
    act: (action: string, actor = "ada") =>
      audit.recordDone(database, { actor, action, target: { kind: "test", id: "1" } }),
    /** What only an owner who means harm would do. */
    tamper: async (...statements: readonly string[]): Promise<void> => {
      const client = await pool.connect();
      try {
        await client.query("set session_replication_role = replica"); // no trigger sees what follows
        for (const sql of statements) await client.query(sql);
      } finally {
        client.release(true);
      }
    },
  };
}

export async function line(client: pg.Pool | pg.PoolClient, saga: string, version: number): Promise<void> {
  await client.query(
    `insert into sagabox.saga_audit_log (saga_id, version, event_type, step, cause, trace_id, input)
     values ($1, $2, 'step_executed', 'pay', 'message:1', 'trace-' || $1, '{"a": 1}')`,
    [saga, version],
  );
}

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
      `insert into sagabox.saga_audit_log (timestamp, saga_id, version, event_type, cause)
       select timestamptz '${month} 12:00Z', 'saga-${month}', n, 'noted', 'x' from generate_series(1, 4) as n`,
    );
    await pool.query(
      `insert into sagabox.audit_log (timestamp, actor, action, target_kind, outcome)
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
