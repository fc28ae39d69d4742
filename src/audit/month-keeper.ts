import type { Json } from "../message/index.ts";
import { quotedSchema, SQLSTATE, sqlState, type Database, type OwnedTransaction } from "../storage/index.ts";
import type { Link } from "./findings.ts";
import { planMonths, type MonthlyTable, type MonthPartition, type MonthPlan } from "./months.ts";
import { retentionRecord } from "./retention-record.ts";
import {
  auditStatements,
  logTables,
  monthStatements,
  partitionStatements,
  type LogName,
} from "./statements.ts";
import { AuditWriter } from "./writer.ts";

/** Whoever waits for such a lock makes everybody behind it wait too, so we ask briefly and come again. */
const LOCK_TIMEOUT = "250ms";

const IN_USE: readonly string[] = [SQLSTATE.lockNotAvailable, SQLSTATE.deadlockDetected];
// Another process was faster; or rows of the month lie in the default partition already, where they stay.
const NOT_POSSIBLE: readonly string[] = [
  SQLSTATE.duplicateTable,
  SQLSTATE.undefinedTable,
  SQLSTATE.checkViolation,
];

/** `kept`: something of it is still needed. `busy`: a table was in use. `taken`: nothing to do for us. */
export type MonthOutcome = "done" | "kept" | "busy" | "taken" | "broken";

type Work = (tx: OwnedTransaction) => Promise<MonthOutcome>;

/** Attaches and drops months, each in a transaction of its own, never two processes at once. */
export class MonthKeeper {
  readonly #database: Database;
  readonly #schema: string;
  readonly #audit: ReturnType<typeof auditStatements>;
  readonly #sql: ReturnType<typeof monthStatements>;

  constructor(database: Database, schema: string) {
    this.#database = database;
    this.#schema = schema;
    this.#audit = auditStatements(quotedSchema(schema));
    this.#sql = monthStatements(quotedSchema(schema));
  }

  async plan(table: MonthlyTable, retentionMs: number): Promise<MonthPlan> {
    const now = (await this.#database.run<{ month: string }>(this.#sql.now)).rows[0]?.month ?? "";
    const found = await this.#database.run<{ name: string }>(this.#sql.partitions, [
      quotedSchema(this.#schema),
      table,
    ]);
    return planMonths(table, { now, existing: found.rows.map(({ name }) => name), retentionMs });
  }

  attach(part: MonthPartition): Promise<MonthOutcome> {
    const { create, attach } = this.#partition(part);
    return this.#alone(async (tx) => {
      await tx.query(create);
      await tx.query(attach);
      return "done";
    });
  }

  /** Drops a month whole, and writes in the same transaction that it did, and from which seal on the chain is left. */
  drop(part: MonthPartition): Promise<MonthOutcome> {
    const { drop } = this.#partition(part);
    return this.#alone(async (tx) => {
      const hindrance = await this.#hindrance(tx, part);
      if (hindrance !== undefined) return hindrance;
      const { anchor: before } = await retentionRecord(tx, this.#audit);
      await tx.query(drop);
      const after = await this.#whatIsLeft(tx, before);
      await new AuditWriter(this.#schema).done(tx, {
        actor: "sagabox",
        action: "audit.retention",
        target: { kind: "partition", id: part.name },
        reason: "older than the retention",
        after: after as unknown as Json,
      });
      return "done";
    });
  }

  async #hindrance(tx: OwnedTransaction, part: MonthPartition): Promise<MonthOutcome | undefined> {
    const sql = this.#partition(part);
    const isTrue = async (text: string): Promise<boolean> =>
      (await tx.query<{ needed: boolean }>(text)).rows[0]?.needed === true;
    if (part.table === "audit_seal") return (await isTrue(sql.sealsNeeded)) ? "kept" : undefined;
    if (part.table === "saga_audit_log" && (await isTrue(sql.needed))) return "kept";
    const log: LogName = part.table === logTables.saga ? "saga" : "action";
    const rows = BigInt((await tx.query<{ count: string }>(sql.rows)).rows[0]?.count ?? "0");
    const sealed = await tx.run<{ count: string }>(this.#sql.sealed, [log, part.month]);
    const covered = BigInt(sealed.rows[0]?.count ?? "0");
    // More: they wait to be sealed. Fewer: somebody removed some, and the rest is evidence.
    return rows > covered ? "kept" : rows < covered ? "broken" : undefined;
  }

  async #whatIsLeft(
    tx: OwnedTransaction,
    before: Link,
  ): Promise<{ readonly dropped: readonly object[]; readonly anchor: Link }> {
    const { rows: months } = await tx.run<{ log: LogName; month: string; gone: boolean }>(
      this.#sql.sealedMonths,
    );
    const [first] = (await tx.run<{ number: string; previous_hash: string }>(this.#sql.firstSeal)).rows;
    const anchor =
      first === undefined
        ? before
        : { number: (BigInt(first.number) - 1n).toString(), hash: first.previous_hash };
    return { dropped: months.filter(({ gone }) => gone).map(({ log, month }) => ({ log, month })), anchor };
  }

  #partition(part: MonthPartition): ReturnType<typeof partitionStatements> {
    return partitionStatements(quotedSchema(this.#schema), part);
  }

  async #alone(work: Work): Promise<MonthOutcome> {
    const tx = await this.#database.begin({ idleTimeoutMs: 60_000 });
    try {
      await tx.run(this.#sql.lockTimeout, [LOCK_TIMEOUT]);
      const { rows } = await tx.run<{ alone: boolean }>(this.#audit.alone, [this.#schema]);
      if (rows[0]?.alone !== true) return "busy";
      const outcome = await work(tx);
      if (outcome === "done") await tx.commit();
      return outcome;
    } catch (error) {
      const state = sqlState(error) ?? "";
      if (IN_USE.includes(state)) return "busy";
      if (NOT_POSSIBLE.includes(state)) return "taken";
      throw error;
    } finally {
      await tx.rollback();
    }
  }
}
