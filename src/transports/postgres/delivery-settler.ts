import {
  LockTolerantSettling,
  rowKeyParams,
  type LaneOwnership,
  type LaneReader,
  type LaneRow,
  type SettleResult,
} from "../../lanes/index.ts";
import { random, sleep } from "../../runtime/index.ts";
import {
  limitLockWait,
  quoteSchema,
  SessionHolder,
  SETTLE_LOCK_WAIT_MS,
  settlingPlans,
  replaceNul,
  toArrayLiteral,
  type Database,
} from "../../storage/index.ts";
import type { Param, Statement } from "../../storage/index.ts";
import type { Observer } from "../../telemetry/index.ts";
import type { RetryOptions } from "../../transport/index.ts";
import { deliveryStatements } from "./statements.ts";

interface RetryRequest extends RetryOptions {
  readonly row: LaneRow;
}

export interface DeliverySettlerOptions {
  readonly database: Database;
  readonly schema: string;
  readonly ownership: LaneOwnership;
  readonly reader: LaneReader;
  readonly observer: Observer;
}

/**
 * Settles deliveries, many in one statement: what is acknowledged while a statement runs goes with the next one.
 * Acknowledgements commit asynchronously (the inbox knows better anyway), retries do not. A delivery whose row another
 * session has locked is settled when that lock is gone; until then it holds back its key and delays no other delivery.
 */
export class DeliverySettler {
  readonly #reader: LaneReader;
  readonly #sql: ReturnType<typeof deliveryStatements>;
  readonly #acking: SessionHolder;
  readonly #retrying: SessionHolder;
  readonly #locks: LockTolerantSettling;
  readonly #ackBatch: WorkBatch<LaneRow>;
  readonly #retryBatch: WorkBatch<RetryRequest>;
  /** How each of these rows is to be retried, for as long as it takes to note that. */
  readonly #retries = new WeakMap<LaneRow, RetryRequest>();

  constructor(options: DeliverySettlerOptions) {
    const { database, schema, reader } = options;
    this.#reader = reader;
    this.#sql = deliveryStatements(quoteSchema(schema));
    const careful = { ...settlingPlans, ...limitLockWait(SETTLE_LOCK_WAIT_MS) };
    this.#acking = new SessionHolder(database, "ack", { ...careful, synchronous_commit: "off" });
    this.#retrying = new SessionHolder(database, "retry", careful);
    this.#locks = new LockTolerantSettling({ ...options, table: "queue", probe: this.#retrying });
    this.#ackBatch = new WorkBatch((rows) => this.#ackAll(rows));
    this.#retryBatch = new WorkBatch((failures) => this.#retryAll(failures));
  }

  ack(row: LaneRow): Promise<void> {
    return this.#ackBatch.add(row);
  }

  retry(row: LaneRow, options: RetryOptions): Promise<void> {
    return this.#retryBatch.add({ row, ...options });
  }

  async close(): Promise<void> {
    await this.#locks.close();
    await Promise.all([this.#ackBatch.waitUntilIdle(), this.#retryBatch.waitUntilIdle()]);
    await Promise.all([this.#acking.close(), this.#retrying.close()]);
  }

  async #ackAll(rows: readonly LaneRow[]): Promise<void> {
    const left = await retryForever(() => this.#writeAcks(rows));
    if (left.length > 0) await this.#locks.keepTrying(left, this.#writeAcks);
  }

  async #retryAll(failures: readonly RetryRequest[]): Promise<void> {
    for (const failure of failures) this.#retries.set(failure.row, failure);
    const left = await retryForever(() => this.#writeRetries(failures.map(({ row }) => row)));
    if (left.length > 0) await this.#locks.keepTrying(left, this.#writeRetries);
  }

  readonly #writeAcks = async (rows: readonly LaneRow[]): Promise<readonly LaneRow[]> => {
    const { acked, ackedPast } = this.#sql;
    const settled = await this.#settleRows(this.#acking, rows, [acked, ackedPast], rowKeyParams);
    this.#reader.settle(settled.rows, settled.xid);
    return settled.left;
  };

  readonly #writeRetries = async (rows: readonly LaneRow[]): Promise<readonly LaneRow[]> => {
    const { retried, retriedPast } = this.#sql;
    const findRetry = (row: LaneRow): RetryRequest | undefined => this.#retries.get(row);
    const params = (own: readonly LaneRow[]): Param[] => [
      ...rowKeyParams(own),
      toArrayLiteral(own.map((row) => findRetry(row)?.delayMs ?? 0)),
      toArrayLiteral(own.map((row) => (findRetry(row)?.charged === false ? 0 : 1))),
      toArrayLiteral(own.map((row) => replaceNul(findRetry(row)?.error.slice(0, 2_000) ?? ""))),
    ];
    const settled = await this.#settleRows(this.#retrying, rows, [retried, retriedPast], params);
    for (const row of settled.rows) this.#reader.putBack([row], findRetry(row)?.delayMs ?? 0);
    return settled.left;
  };

  #settleRows(
    holder: SessionHolder,
    rows: readonly LaneRow[],
    [plain, past]: readonly [Statement, Statement],
    params: (rows: readonly LaneRow[]) => Param[],
  ): Promise<SettleResult> {
    return this.#locks.settle(holder, rows, {
      plain: (own) => ({ statement: plain, params: params(own) }),
      past: (own) => ({ statement: past, params: params(own) }),
    });
  }
}

async function retryForever<T>(work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work();
    } catch {
      await sleep(Math.min(2_000, 50 * 2 ** Math.min(attempt, 6)) * (0.5 + random() / 2));
    }
  }
}

/** Gathers what arrives while the last lot is being worked on. */
class WorkBatch<T> {
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

  async waitUntilIdle(): Promise<void> {
    while (this.#next !== undefined) await this.#next.catch(() => undefined);
    await this.#running;
  }
}
