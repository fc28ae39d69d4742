import {
  placesOf,
  settleUnderClaims,
  type LaneOwnership,
  type LaneReader,
  type LaneRow,
} from "../../lanes/index.ts";
import { random, sleep } from "../../runtime/index.ts";
import {
  quotedSchema,
  SessionHolder,
  settlingPlans,
  storable,
  textArray,
  type Database,
} from "../../storage/index.ts";
import type { Param, Statement } from "../../storage/index.ts";
import type { RetryOptions } from "../../transport/index.ts";
import { deliveryStatements } from "./statements.ts";

interface Retried extends RetryOptions {
  readonly row: LaneRow;
}

/**
 * Settles deliveries, many in one statement: what is acknowledged while a statement runs goes with the next one.
 * Acknowledgements commit asynchronously (the inbox knows better anyway), retries do not.
 */
export class DeliverySettler {
  readonly #ownership: LaneOwnership;
  readonly #reader: LaneReader;
  readonly #sql: ReturnType<typeof deliveryStatements>;
  readonly #acking: SessionHolder;
  readonly #retrying: SessionHolder;
  readonly #acked: Batch<LaneRow>;
  readonly #retried: Batch<Retried>;

  constructor(database: Database, schema: string, ownership: LaneOwnership, reader: LaneReader) {
    this.#ownership = ownership;
    this.#reader = reader;
    this.#sql = deliveryStatements(quotedSchema(schema));
    this.#acking = new SessionHolder(database, "ack", { ...settlingPlans, synchronous_commit: "off" });
    this.#retrying = new SessionHolder(database, "retry", settlingPlans);
    this.#acked = new Batch((rows) => this.#ackAll(rows));
    this.#retried = new Batch((failures) => this.#retryAll(failures));
  }

  ack(row: LaneRow): Promise<void> {
    return this.#acked.add(row);
  }

  retry(row: LaneRow, options: RetryOptions): Promise<void> {
    return this.#retried.add({ row, ...options });
  }

  async close(): Promise<void> {
    await Promise.all([this.#acked.idle(), this.#retried.idle()]);
    await Promise.all([this.#acking.close(), this.#retrying.close()]);
  }

  async #ackAll(rows: readonly LaneRow[]): Promise<void> {
    const own = await this.#insist(this.#acking, this.#sql.acked, rows, (some) => placesOf(some));
    this.#reader.settled(own.rows, own.xid);
  }

  async #retryAll(failures: readonly Retried[]): Promise<void> {
    const byRow = new Map(failures.map((failure) => [failure.row, failure]));
    const own = await this.#insist(this.#retrying, this.#sql.retried, [...byRow.keys()], (rows) => [
      ...placesOf(rows),
      textArray(rows.map((row) => byRow.get(row)?.delayMs ?? 0)),
      textArray(rows.map((row) => (byRow.get(row)?.charged === false ? 0 : 1))),
      textArray(rows.map((row) => storable(byRow.get(row)?.error.slice(0, 2_000) ?? ""))),
    ]);
    for (const row of own.rows) this.#reader.back([row], byRow.get(row)?.delayMs ?? 0);
  }

  async #insist(
    holder: SessionHolder,
    statement: Statement,
    rows: readonly LaneRow[],
    params: (rows: readonly LaneRow[]) => Param[],
  ): Promise<Awaited<ReturnType<typeof settleUnderClaims>>> {
    for (let attempt = 1; ; attempt++) {
      try {
        const parts = { ownership: this.#ownership, reader: this.#reader, holder };
        return await settleUnderClaims(parts, rows, (own) => ({ statement, params: params(own) }));
      } catch {
        await sleep(Math.min(2_000, 50 * 2 ** Math.min(attempt, 6)) * (0.5 + random() / 2));
      }
    }
  }
}

/** Gathers what arrives while the last lot is being worked on. */
class Batch<T> {
  readonly #work: (items: readonly T[]) => Promise<void>;
  #waiting: T[] = [];
  #next: Promise<void> | undefined;
  #running: Promise<void> = Promise.resolve();

  constructor(work: (items: readonly T[]) => Promise<void>) {
    this.#work = work;
  }

  add(item: T): Promise<void> {
    this.#waiting.push(item);
    this.#next ??= this.#running.then(() => {
      const items = this.#waiting;
      this.#waiting = [];
      this.#next = undefined;
      const done = this.#work(items);
      this.#running = done.catch(() => undefined);
      return done;
    });
    return this.#next;
  }

  async idle(): Promise<void> {
    while (this.#next !== undefined) await this.#next.catch(() => undefined);
    await this.#running;
  }
}
