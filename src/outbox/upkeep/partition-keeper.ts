import { random, sleep, withJitter } from "../../runtime/index.ts";
import { quoteSchema, SQLSTATE, sqlState } from "../../storage/index.ts";
import type { Database, OwnedTransaction } from "../../storage/index.ts";
import { partition, type DailyTable, type ExistingPartition, type Partition } from "./partition.ts";
import { historyStatements, partitionStatements } from "./statements.ts";

/** Whoever waits for such a lock makes everybody behind it wait too, so we ask briefly and often. */
const LOCK_TIMEOUT = "250ms";
const MAX_TRIES = 4;
const MAX_ROUNDS = 100;
const ID_BATCH_SIZE = 1_000;

const IN_USE: readonly string[] = [SQLSTATE.lockNotAvailable, SQLSTATE.deadlockDetected];
// Between our look and our turn another process has made, or dropped, the very table.
const DONE_BY_OTHERS: readonly string[] = [SQLSTATE.duplicateTable, SQLSTATE.undefinedTable];

/** `busy`: a table was in use each time we asked. `taken`: another process is doing the same work. */
export type Outcome = "done" | "busy" | "taken";

type Work = (tx: OwnedTransaction) => Promise<unknown>;

export interface DailyState {
  readonly today: string;
  readonly existing: readonly ExistingPartition[];
  readonly strays: readonly string[];
}

/** Changes partitions, each change in a transaction of its own, never two processes at once. */
export class PartitionKeeper {
  readonly #database: Database;
  readonly #schema: string;
  readonly #sql: ReturnType<typeof historyStatements>;

  constructor(database: Database, schema: string) {
    this.#database = database;
    this.#schema = schema;
    this.#sql = historyStatements(quoteSchema(schema));
  }

  async look(of: DailyTable): Promise<DailyState> {
    const { today, partitions } = this.#sql;
    const day = await this.#database.run<{ today: string }>(today);
    const tables = await this.#database.run<ExistingPartition>(partitions, [
      quoteSchema(this.#schema),
      of.table,
    ]);
    const now = day.rows[0]?.today ?? "";
    const strays = await this.#strays(partition(of, now));
    return { today: now, existing: tables.rows, strays };
  }

  /** A partition is made outside and attached: only then can writers and readers go on meanwhile. */
  attach(part: Partition, signal?: AbortSignal): Promise<Outcome> {
    const sql = this.#partition(part);
    return this.#runExclusively(signal, async (tx) => {
      const { rows } = await tx.query<{ columns: string }>(sql.columns);
      const adopt = sql.adopt(rows[0]?.columns ?? "");
      await tx.query(sql.create);
      await tx.query(adopt); // all that is there, without keeping anybody out …
      await tx.query(sql.lock);
      await tx.query(adopt); // … and what came meanwhile
      await tx.query(sql.attach);
    });
  }

  detach(part: Partition, signal?: AbortSignal): Promise<Outcome> {
    return this.#runExclusively(signal, (tx) => tx.query(this.#partition(part).detach));
  }

  drop(part: Partition, signal?: AbortSignal): Promise<Outcome> {
    return this.#runExclusively(signal, (tx) => tx.query(this.#partition(part).drop));
  }

  /** Copies what is still referred to into today's partition; done when nothing refers to the day any more. */
  async carry(part: Partition, signal?: AbortSignal): Promise<Outcome> {
    if (part.table !== "message") return "done";
    const { carry } = this.#partition(part);
    for (let round = 1; round <= MAX_ROUNDS; round++) {
      const { rows } = await this.#database.run<{ needed: boolean }>(this.#sql.stillNeeded, [part.day]);
      if (rows[0]?.needed !== true) return "done";
      let carried = 0;
      const outcome = await this.#runExclusively(signal, async (tx) => {
        carried = (await tx.query<{ carried: number }>(carry)).rows[0]?.carried ?? 0;
      });
      if (outcome === "taken") return outcome;
      if (carried === 0 && !(await sleep(50, signal))) break;
    }
    return "busy";
  }

  /** Gives back their pages to tables that a restored dump, TRUNCATE or VACUUM FULL has left small; plans rely on them. */
  async reservePages(): Promise<void> {
    await this.#database.run(this.#sql.reservePages);
  }

  /** Forgets ids from before that day which nothing carries any more. */
  async forgetIds(day: string, signal?: AbortSignal): Promise<number> {
    let total = 0;
    while (signal?.aborted !== true) {
      const { rowCount } = await this.#database.run(this.#sql.forgetIds, [day, ID_BATCH_SIZE]);
      total += rowCount;
      if (rowCount < ID_BATCH_SIZE) break;
    }
    return total;
  }

  async #strays(part: Partition): Promise<readonly string[]> {
    const tx = await this.#database.begin();
    try {
      return (await tx.query<{ day: string }>(this.#partition(part).strays)).rows.map(({ day }) => day);
    } finally {
      await tx.rollback();
    }
  }

  #partition(part: Partition): ReturnType<typeof partitionStatements> {
    return partitionStatements(quoteSchema(this.#schema), part);
  }

  async #runExclusively(signal: AbortSignal | undefined, work: Work): Promise<Outcome> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#tryOnce(work);
      } catch (error) {
        const state = sqlState(error) ?? "";
        if (DONE_BY_OTHERS.includes(state)) return "taken";
        if (!IN_USE.includes(state)) throw error;
        if (attempt >= MAX_TRIES) return "busy";
        if (!(await sleep(withJitter(100 * 2 ** attempt, 0.5, random), signal))) return "busy";
      }
    }
  }

  async #tryOnce(work: Work): Promise<Outcome> {
    const tx = await this.#database.begin({ idleTimeoutMs: 60_000 });
    try {
      await tx.run(this.#sql.lockTimeout, [LOCK_TIMEOUT]);
      const { rows } = await tx.run<{ alone: boolean }>(this.#sql.alone, [this.#schema]);
      if (rows[0]?.alone !== true) return "taken";
      await work(tx);
      await tx.commit();
      return "done";
    } finally {
      await tx.rollback();
    }
  }
}
