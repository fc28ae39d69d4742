import { Loop, type Service } from "../../runtime/index.ts";
import { explainPostgresError, quoteSchema, type Database } from "../../storage/index.ts";
import { silentObserver, type Observer } from "../../telemetry/index.ts";
import { printableErrorText } from "../failures.ts";
import { PartitionKeeper, type Outcome } from "./partition-keeper.ts";
import { addDays, dailyTables, planPartitions, type Partition } from "./partition.ts";

export interface HistoryOptions {
  readonly database: Database;
  readonly schema: string;
  /** How long sent messages, their receipts and the ids that callers chose are kept. */
  readonly retentionMs: number;
  readonly observer: Observer;
  /** How often it looks. Default one hour. */
  readonly intervalMs?: number;
}

const HOUR_MS = 3_600_000;
const AGAIN_MS = 60_000;
const FOR_EVER_DAYS = 36_500;

/**
 * Keeps the archive: a partition per day, attached a week ahead and dropped whole after the retention. What is still
 * to be sent or delivered from a day that goes is copied into today's partition first.
 */
export class History implements Service {
  readonly #options: HistoryOptions;
  readonly #keeper: PartitionKeeper;
  readonly #loop: Loop;

  constructor(options: HistoryOptions) {
    this.#options = options;
    this.#keeper = new PartitionKeeper(options.database, options.schema);
    this.#loop = new Loop({
      step: async (signal) => {
        const intervalMs = options.intervalMs ?? HOUR_MS;
        return (await this.tidy(signal)) ? intervalMs : Math.min(intervalMs, AGAIN_MS);
      },
      onError: (error) => this.#reportFailure(error),
      backoffMs: 1_000,
      maxBackoffMs: AGAIN_MS,
    });
  }

  start(): Promise<void> {
    return this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  get #retentionDays(): number {
    return Math.ceil(this.#options.retentionMs / (24 * HOUR_MS));
  }

  /** What a round would do now, by the names of the partitions. */
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

  /** One round. Resolves false when something has to be tried again soon. */
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

  // Looked at again after the detach: by then every transaction that could read the day has ended, so nothing new can
  // refer to it, and what refers to it is visible.
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

  #reportFailure(error: unknown): void {
    const { observer, schema } = this.#options;
    const told = printableErrorText(explainPostgresError(error, quoteSchema(schema), "owner"));
    observer.emit("storage.failed", { doing: "keeping the history", error: told, retryInMs: 1_000 });
  }
}

/** Gives a freshly migrated schema its first partitions. What is in use just now is left to the running service. */
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

/** Whoever keeps one partition from being changed mostly keeps all of them, so the first one in use ends it. */
async function inTurn<T>(parts: readonly T[], work: (part: T) => Promise<Outcome>): Promise<boolean> {
  for (const part of parts) if ((await work(part)) === "busy") return false;
  return true;
}
