import type { Json } from "../message/index.ts";
import {
  type Database,
  type OwnedTransaction,
  quoteSchema,
  SQLSTATE,
  sqlState,
  TABLE_LOCK_IDLE_MS,
} from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import {
  type MonthlyTable,
  monthlyTables,
  type MonthPartition,
  type MonthPlan,
  planMonths,
  readRetention,
  RETENTION_ACTOR,
  RETENTION_TARGET,
  type RetentionRecord,
} from "./retention.ts";
import {
  auditStatements,
  type LogName,
  logTables,
  monthStatements,
  partitionStatements,
} from "./statements.ts";
import { AuditWriter } from "./writer.ts";

export interface TidyMonthsOptions {
  readonly retentionMs: number;
  readonly observer: Observer;
  /** Stops between two months. */
  readonly signal?: AbortSignal;
}

/** Creates partitions for the next months and drops expired ones. A table that is locked is left for the next round. */
export async function maintainMonths(
  database: Database,
  schema: string,
  { retentionMs, observer, signal }: TidyMonthsOptions,
): Promise<void> {
  const keeper = new MonthKeeper(database, schema);
  for (const table of monthlyTables) {
    const { attach, retire } = await keeper.plan(table, retentionMs);
    for (const part of attach) {
      if (signal?.aborted === true) return;
      if ((await keeper.attach(part)) === "done") {
        observer.emit("history.partition", { action: "attached", partition: part.name });
      }
    }
    for (const part of retire) {
      if (signal?.aborted === true) return;
      const outcome = await keeper.drop(part);
      if (outcome === "taken") continue;
      if (outcome === "broken") {
        const text = `Rows of ${part.name} are missing that were sealed. It is kept as it is.`;
        observer.emit("audit.broken", { kind: "row_missing", seal: null, error: text });
      }
      observer.emit("history.partition", {
        action: outcome === "done" ? "dropped" : "kept",
        partition: part.name,
      });
    }
  }
}

/** Waiting for an exclusive lock blocks all later queries on the table, so the wait is short and retried next round. */
const LOCK_TIMEOUT = "250ms";

const IN_USE: readonly string[] = [SQLSTATE.lockNotAvailable, SQLSTATE.deadlockDetected];
// Another process was faster, or the default partition already has rows of this month, which then stay there.
const NOT_POSSIBLE: readonly string[] = [
  SQLSTATE.duplicateTable,
  SQLSTATE.undefinedTable,
  SQLSTATE.checkViolation,
];

/**
 * `kept`: the month is still needed. `busy`: a table is locked. `taken`: another process did it. `broken`: sealed rows are
 * missing, so the month is kept as evidence.
 */
type MonthOutcome = "done" | "kept" | "busy" | "taken" | "broken";

interface LastSeal {
  readonly number: string;
  readonly hash: string;
  /** Number of seals in the month. */
  readonly count: string;
}

type Work = (tx: OwnedTransaction) => Promise<MonthOutcome>;

/** Attaches and drops monthly partitions, each in its own transaction, in one process at a time. */
class MonthKeeper {
  readonly #database: Database;
  readonly #schema: string;
  readonly #audit: ReturnType<typeof auditStatements>;
  readonly #sql: ReturnType<typeof monthStatements>;

  constructor(database: Database, schema: string) {
    this.#database = database;
    this.#schema = schema;
    this.#audit = auditStatements(quoteSchema(schema));
    this.#sql = monthStatements(quoteSchema(schema));
  }

  async plan(table: MonthlyTable, retentionMs: number): Promise<MonthPlan> {
    const now = (await this.#database.run<{ month: string }>(this.#sql.now)).rows[0]?.month ?? "";
    const found = await this.#database.run<{ name: string }>(this.#sql.partitions, [
      quoteSchema(this.#schema),
      table,
    ]);
    return planMonths(table, { now, existing: found.rows.map(({ name }) => name), retentionMs });
  }

  attach(part: MonthPartition): Promise<MonthOutcome> {
    const { create, attach } = this.#partition(part);
    return this.#runExclusively(async (tx) => {
      await tx.query(create);
      await tx.query(attach);
      return "done";
    });
  }

  /** Drops a month. The same transaction records the drop, and the seal after which the chain now starts, in the log. */
  drop(part: MonthPartition): Promise<MonthOutcome> {
    const { drop } = this.#partition(part);
    return this.#runExclusively(async (tx) => {
      const before = await readRetention(tx, this.#audit, quoteSchema(this.#schema));
      const last = part.table === "audit_seal" ? await this.#readLastSeal(tx, part) : undefined;
      const obstacle =
        part.table === "audit_seal"
          ? await this.#findSealObstacle(tx, part, before, last)
          : await this.#findObstacle(tx, part);
      if (obstacle !== undefined) return obstacle;
      await tx.query(drop);
      const dropped = await this.#listDroppedMonths(tx, before, part);
      const anchor = last === undefined ? before.anchor : { number: last.number, hash: last.hash };
      await new AuditWriter(this.#schema).recordDone(tx, {
        actor: RETENTION_ACTOR,
        action: "audit.retention",
        target: { kind: RETENTION_TARGET, id: part.name },
        reason: "older than the retention",
        after: { dropped, anchor } as unknown as Json,
      });
      return "done";
    });
  }

  async #findObstacle(tx: OwnedTransaction, part: MonthPartition): Promise<MonthOutcome | undefined> {
    const sql = this.#partition(part);
    if (part.table === "saga_audit_log" && (await isNeeded(tx, sql.needed))) return "kept";
    const log = logForTable(part.table);
    const rows = BigInt((await tx.query<{ count: string }>(sql.rows)).rows[0]?.count ?? "0");
    const sealed = await tx.run<{ count: string }>(this.#sql.sealed, [log, part.month]);
    const covered = BigInt(sealed.rows[0]?.count ?? "0");
    // More rows than sealed: some are not sealed yet. Fewer: sealed rows were removed, and the rest is evidence.
    return rows > covered ? "kept" : rows < covered ? "broken" : undefined;
  }

  async #findSealObstacle(
    tx: OwnedTransaction,
    part: MonthPartition,
    { anchor }: RetentionRecord,
    last: LastSeal | undefined,
  ): Promise<MonthOutcome | undefined> {
    if (await isNeeded(tx, this.#partition(part).sealsNeeded)) return "kept";
    if (last === undefined) return undefined;
    // Fewer seals than numbers: some were removed, and the rest is evidence.
    return BigInt(last.number) - BigInt(anchor.number) === BigInt(last.count) ? undefined : "broken";
  }

  async #readLastSeal(tx: OwnedTransaction, part: MonthPartition): Promise<LastSeal | undefined> {
    return (await tx.query<LastSeal>(this.#partition(part).lastSeal)).rows[0];
  }

  // Only months dropped by this upkeep: a month that was emptied in another way stays reported as missing.
  async #listDroppedMonths(
    tx: OwnedTransaction,
    before: RetentionRecord,
    part: MonthPartition,
  ): Promise<RetentionRecord["dropped"]> {
    const { rows: months } = await tx.run<{ log: LogName; month: string; gone: boolean }>(
      this.#sql.sealedMonths,
    );
    const log = part.table === "audit_seal" ? null : logForTable(part.table);
    const known = [...before.dropped, { log, month: part.month }];
    const isOurs = (one: { readonly log: LogName; readonly month: string }): boolean =>
      known.some(({ log, month }) => log === one.log && month === one.month);
    return months.filter((one) => one.gone && isOurs(one)).map(({ log, month }) => ({ log, month }));
  }

  #partition(part: MonthPartition): ReturnType<typeof partitionStatements> {
    return partitionStatements(quoteSchema(this.#schema), part);
  }

  async #runExclusively(work: Work): Promise<MonthOutcome> {
    const tx = await this.#database.begin({ idleTimeoutMs: TABLE_LOCK_IDLE_MS });
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

async function isNeeded(tx: OwnedTransaction, text: string): Promise<boolean> {
  return (await tx.query<{ needed: boolean }>(text)).rows[0]?.needed === true;
}

function logForTable(table: MonthlyTable): LogName {
  return table === logTables.saga ? "saga" : "action";
}
