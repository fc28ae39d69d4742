import { type FailedRound, PeriodicService, retryWithBackoff, sleep } from "../../runtime/index.ts";
import {
  type Database,
  explainPostgresError,
  type OwnedTransaction,
  quoteSchema,
  SQLSTATE,
  sqlState,
  TABLE_LOCK_IDLE_MS,
} from "../../storage/index.ts";
import { type Observer, silentObserver } from "../../telemetry/index.ts";
import { printableErrorText } from "../settler.ts";
import { historyStatements, partitionStatements } from "./statements.ts";

export interface HistoryOptions {
  readonly database: Database;
  readonly schema: string;
  /** How long sent messages, receipts and ids of callers are kept, in milliseconds. */
  readonly retentionMs: number;
  readonly observer: Observer;
  /** How often partitions are checked, in milliseconds. Default one hour. */
  readonly intervalMs?: number;
}

const HOUR_MS = 3_600_000;
const AGAIN_MS = 60_000;
const FOR_EVER_DAYS = 36_500;

/**
 * Maintains the archive: one partition per day, attached a week ahead and dropped after the retention.
 * Messages of a dropped day that are still to be sent or delivered are copied to today's partition first.
 */
export class History extends PeriodicService {
  readonly #options: HistoryOptions;
  readonly #keeper: PartitionKeeper;

  constructor(options: HistoryOptions) {
    super({ everyMs: options.intervalMs ?? HOUR_MS });
    this.#options = options;
    this.#keeper = new PartitionKeeper(options.database, options.schema);
  }

  get #retentionDays(): number {
    return Math.ceil(this.#options.retentionMs / (24 * HOUR_MS));
  }

  /** Returns the partitions that `tidy` would attach and drop now. */
  async plan(): Promise<{ readonly attach: readonly string[]; readonly drop: readonly string[] }> {
    const [attach, drop]: [string[], string[]] = [[], []];
    for (const of of dailyTables) {
      const state = await this.#keeper.look(of);
      const plan = planPartitions(of, { ...state, retentionDays: this.#retentionDays, inUse: true });
      attach.push(...plan.attach.map(({ name }) => name));
      drop.push(...plan.retire.map(({ name }) => name));
    }
    return { attach, drop };
  }

  /** Attaches and drops partitions. Resolves to false if a step has to be retried soon. */
  async tidy(signal?: AbortSignal): Promise<boolean> {
    const retentionDays = this.#retentionDays;
    let allDone = true;
    let today = "";
    for (const of of dailyTables) {
      const state = await this.#keeper.look(of);
      today = state.today;
      const plan = planPartitions(of, { ...state, retentionDays, inUse: true });
      if (!(await inTurn(plan.attach, (part) => this.#attach(part, signal)))) allDone = false;
      if (!(await inTurn(plan.retire, (part) => this.#retire(part, signal)))) allDone = false;
    }
    const count = await this.#keeper.forgetIds(addDays(today, -retentionDays), signal);
    if (count > 0) this.#options.observer.emit("history.cleaned", { table: "published_id", count });
    if (signal?.aborted !== true) await this.#keeper.reservePages();
    return allDone;
  }

  async #attach(part: Partition, signal?: AbortSignal): Promise<Outcome> {
    if (signal?.aborted === true) return "busy";
    const outcome = await this.#keeper.attach(part, signal);
    if (outcome === "done") this.#emit("attached", part);
    return outcome;
  }

  // Messages are copied again after the detach: by then every transaction that could read the day has ended,
  // so all references to it are visible and no new ones can appear.
  async #retire(part: Partition & { attached: boolean }, signal?: AbortSignal): Promise<Outcome> {
    const steps = part.attached
      ? (["carry", "detach", "carry", "drop"] as const)
      : (["carry", "drop"] as const);
    for (const step of steps) {
      const outcome = signal?.aborted === true ? "busy" : await this.#keeper[step](part, signal);
      if (outcome === "busy") this.#emit("kept", part);
      if (outcome !== "done") return outcome;
    }
    this.#emit("dropped", part);
    return "done";
  }

  #emit(action: "attached" | "dropped" | "kept", { name }: Partition): void {
    this.#options.observer.emit("history.partition", { action, partition: name });
  }

  protected override async runRound(signal: AbortSignal): Promise<number> {
    const { intervalMs = HOUR_MS } = this.#options;
    return (await this.tidy(signal)) ? intervalMs : Math.min(intervalMs, AGAIN_MS);
  }

  protected override onFailure({ error, retryInMs }: FailedRound): void {
    const { observer, schema } = this.#options;
    const text = printableErrorText(explainPostgresError(error, quoteSchema(schema), "owner"));
    observer.emit("storage.failed", { doing: "keeping the history", error: text, retryInMs });
  }
}

/**
 * Creates the first partitions of a freshly migrated schema. Tables in use are left to the running service.
 */
export async function ensurePartitions(
  database: Database,
  schema: string,
  observer: Observer = silentObserver,
): Promise<void> {
  const keeper = new PartitionKeeper(database, schema);
  for (const of of dailyTables) {
    const plan = planPartitions(of, { ...(await keeper.look(of)), retentionDays: FOR_EVER_DAYS });
    for (const part of plan.attach) {
      if ((await keeper.attach(part)) !== "done") return;
      observer.emit("history.partition", { action: "attached", partition: part.name });
    }
  }
}

/**
 * Runs the work for each partition and stops at the first one in use: a session that blocks one change
 * usually blocks all of them.
 */
async function inTurn<T>(parts: readonly T[], work: (part: T) => Promise<Outcome>): Promise<boolean> {
  for (const part of parts) if ((await work(part)) === "busy") return false;
  return true;
}

/** All later queries queue behind a session that waits for this lock, so each attempt is short. */
const LOCK_TIMEOUT = "250ms";
const MAX_TRIES = 4;
const MAX_ROUNDS = 100;
const ID_BATCH_SIZE = 1_000;

const IN_USE: readonly string[] = [SQLSTATE.lockNotAvailable, SQLSTATE.deadlockDetected];
const IN_USE_BACKOFF = { firstMs: 300, maxMs: 10_000 };
// Another process created or dropped the table after we listed the partitions.
const DONE_BY_OTHERS: readonly string[] = [SQLSTATE.duplicateTable, SQLSTATE.undefinedTable];

/** `busy`: a table was in use at each attempt. `taken`: another process does the same work. */
type Outcome = "done" | "busy" | "taken";

type Work = (tx: OwnedTransaction) => Promise<unknown>;

interface DailyState {
  readonly today: string;
  readonly existing: readonly ExistingPartition[];
  readonly strays: readonly string[];
}

/** Changes partitions, each change in its own transaction. Only one process at a time does so. */
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

  /**
   * Creates a partition as a separate table and then attaches it, so that writers and readers are not blocked
   * meanwhile.
   */
  attach(part: Partition, signal?: AbortSignal): Promise<Outcome> {
    const sql = this.#partition(part);
    return this.#runExclusively(signal, async (tx) => {
      const { rows } = await tx.query<{ columns: string }>(sql.columns);
      const adopt = sql.adopt(rows[0]?.columns ?? "");
      await tx.query(sql.create);
      await tx.query(adopt); // moves existing rows without a lock …
      // … and those that arrived meanwhile. Publishers wait, so all of it takes one round trip.
      await tx.query(`${sql.lock}; ${adopt}; ${sql.attach}`);
    });
  }

  detach(part: Partition, signal?: AbortSignal): Promise<Outcome> {
    return this.#runExclusively(signal, (tx) => tx.query(this.#partition(part).detach));
  }

  drop(part: Partition, signal?: AbortSignal): Promise<Outcome> {
    return this.#runExclusively(signal, (tx) => tx.query(this.#partition(part).drop));
  }

  /**
   * Copies messages that are still referenced to today's partition; done when nothing references the day any
   * more.
   */
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

  /**
   * Reserves pages again for tables that a restored dump, TRUNCATE or VACUUM FULL has left small; query plans
   * rely on them.
   */
  async reservePages(): Promise<void> {
    await this.#database.run(this.#sql.reservePages);
  }

  /** Deletes ids from before that day which no message has any more. */
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
    try {
      const outcome = await retryWithBackoff(() => this.#tryOnce(work), {
        backoff: IN_USE_BACKOFF,
        maxTries: MAX_TRIES,
        isRetryable: (error) => IN_USE.includes(sqlState(error) ?? ""),
        ...(signal !== undefined && { signal }),
      });
      return outcome ?? "busy";
    } catch (error) {
      if (DONE_BY_OTHERS.includes(sqlState(error) ?? "")) return "taken";
      throw error;
    }
  }

  async #tryOnce(work: Work): Promise<Outcome> {
    const tx = await this.#database.begin({ idleTimeoutMs: TABLE_LOCK_IDLE_MS });
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

/** The tables partitioned by day, and the partition column. */
export const dailyTables = [
  { table: "message", column: "written_on" },
  { table: "receipt", column: "sent_on" },
] as const;

type DailyTable = (typeof dailyTables)[number];

/**
 * One day of one table. `day` is an ISO date in UTC. Name and day become part of SQL text, so only
 * `partition` creates them.
 */
interface Partition {
  readonly table: DailyTable["table"];
  readonly column: DailyTable["column"];
  readonly name: string;
  readonly day: string;
}

interface ExistingPartition {
  readonly name: string;
  readonly attached: boolean;
}

interface PartitionPlan {
  readonly attach: readonly Partition[];
  /** Partitions older than the retention: to be detached, unless they are already, and dropped. */
  readonly retire: readonly (Partition & { readonly attached: boolean })[];
}

interface PlanInput {
  readonly today: string;
  readonly existing: readonly ExistingPartition[];
  readonly retentionDays: number;
  /** Days with rows in the default partition. */
  readonly strays?: readonly string[];
  /**
   * Writers may be active. A row in flight to the default partition is refused if its day gets a partition
   * meanwhile, so today keeps the default partition until the day is over.
   */
  readonly inUse?: boolean;
}

const DAY_MS = 86_400_000;
const DAYS_AHEAD = 7;

export function partition(of: DailyTable, day: string): Partition {
  const time = Date.parse(`${day}T00:00:00Z`);
  if (!/^\d{4}-\d{2}-\d{2}$/.test(day) || Number.isNaN(time) || isoDay(time) !== day) {
    throw new Error(`"${day}" is not a day.`);
  }
  return { ...of, day, name: `${of.table}_${day.replaceAll("-", "")}` };
}

/** Pure: computes which days lack a partition, and which partitions are older than the retention. */
export function planPartitions(of: DailyTable, input: PlanInput): PartitionPlan {
  const { today, existing, retentionDays, strays = [], inUse = strays.includes(today) } = input;
  const names = new Set(existing.map(({ name }) => name));
  const ahead = Array.from({ length: DAYS_AHEAD + 1 }, (_, days) => addDays(today, days));
  const days = [...new Set([...strays, ...ahead])].filter((day) => !(inUse && day === today));
  const needed = days.toSorted().map((day) => partition(of, day));
  const oldest = addDays(today, -retentionDays);
  return {
    attach: needed.filter(({ name }) => !names.has(name)),
    retire: existing.flatMap(({ name, attached }) => {
      const known = fromName(of, name);
      return known !== undefined && known.day < oldest ? [{ ...known, attached }] : [];
    }),
  };
}

export function addDays(day: string, days: number): string {
  return isoDay(Date.parse(`${day}T00:00:00Z`) + days * DAY_MS);
}

function fromName(of: DailyTable, name: string): Partition | undefined {
  const [, year, month, date] = /_(\d{4})(\d{2})(\d{2})$/.exec(name) ?? [];
  try {
    const known = partition(of, `${year}-${month}-${date}`);
    return known.name === name ? known : undefined;
  } catch {
    return undefined; // a table of the user with a similar name
  }
}

function isoDay(time: number): string {
  return new Date(time).toISOString().slice(0, 10);
}
