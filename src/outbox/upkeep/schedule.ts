import { PeriodicService, type FailedRound } from "../../runtime/index.ts";
import { quoteSchema, type Database } from "../../storage/index.ts";
import type { Observer } from "../../telemetry/index.ts";
import { printableErrorText } from "../settler.ts";
import { writeStatements } from "../statements.ts";

export interface ScheduleMoverOptions {
  readonly database: Database;
  readonly schema: string;
  readonly observer: Observer;
  /** Called with the lanes that have new rows, right after the commit. */
  readonly onMoved: (lanes: readonly number[]) => void;
  /** How many rows one statement moves. Default 500. */
  readonly batchSize?: number;
}

/** A message that is due sooner may be written meanwhile, so this is the longest sleep, in milliseconds. */
const MAX_SLEEP_MS = 1_000;
/** Wait while another process moves the due messages, in milliseconds. */
const TAKEN_BY_OTHERS_MS = 50;

/** Moves due scheduled messages to the outbox. Any number of processes may run it. */
export class ScheduleMover extends PeriodicService {
  readonly #options: ScheduleMoverOptions;
  readonly #sql: ReturnType<typeof writeStatements>;

  constructor(options: ScheduleMoverOptions) {
    super({ everyMs: MAX_SLEEP_MS, backoff: { firstMs: 100, maxMs: 10_000 } });
    this.#options = options;
    this.#sql = writeStatements(quoteSchema(options.schema));
  }

  /** Runs one statement. Resolves to the number of messages moved. */
  async move(): Promise<number> {
    const { database, schema, observer, onMoved, batchSize = 500 } = this.#options;
    const { rows } = await database.run<{ lane: number }>(this.#sql.moveDue, [batchSize, schema]);
    if (rows.length === 0) return 0;
    observer.emit("scheduled.due", { count: rows.length });
    onMoved([...new Set(rows.map(({ lane }) => lane))]);
    return rows.length;
  }

  /** Resolves to true if a scheduled message is due. */
  async isDue(): Promise<boolean> {
    return (await this.#nextDueMs()) <= 0;
  }

  async #nextDueMs(): Promise<number> {
    const { rows } = await this.#options.database.run<{ wait_ms: number | null }>(this.#sql.nextDue);
    return rows[0]?.wait_ms ?? MAX_SLEEP_MS;
  }

  protected override async runRound(): Promise<number> {
    const { batchSize = 500 } = this.#options;
    if ((await this.move()) === batchSize) return 0;
    const waitMs = await this.#nextDueMs();
    return waitMs <= 0 ? TAKEN_BY_OTHERS_MS : Math.min(MAX_SLEEP_MS, Math.ceil(waitMs));
  }
  protected override onFailure({ error, retryInMs }: FailedRound): void {
    const failure = { doing: "moving scheduled messages", error: printableErrorText(error), retryInMs };
    this.#options.observer.emit("storage.failed", failure);
  }
}
