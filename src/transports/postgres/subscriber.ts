import { errorText, SagaboxError } from "../../errors/index.ts";
import {
  dueStatement,
  type GuestView,
  LaneOwnership,
  LaneReader,
  type LaneRow,
  type LaneSettings,
  type LaneWorker,
  LockTolerantSettling,
  rowKeyParams,
  type SettleResult,
} from "../../lanes/index.ts";
import type { Message } from "../../message/index.ts";
import { Loop, retryWithBackoff, systemClock } from "../../runtime/index.ts";
import {
  type Database,
  LEASE_LOCK_WAIT_MS,
  limitLockWait,
  type Param,
  quoteSchema,
  replaceNul,
  SessionHolder,
  SETTLE_LOCK_WAIT_MS,
  settlingPlans,
  type Statement,
  steadyPlans,
  toArrayLiteral,
} from "../../storage/index.ts";
import type { Observer } from "../../telemetry/index.ts";
import type {
  AckWith,
  Delivery,
  GuestConsumption,
  GuestTerms,
  RetryOptions,
  Subscription,
} from "../../transport/index.ts";
import { deliveryStatements } from "./statements.ts";

export interface SubscriberOptions {
  readonly database: Database;
  readonly schema: string;
  readonly group: number;
  readonly subscription: Subscription;
  readonly lanes: LaneSettings;
  readonly pollMs: number;
  readonly observer: Observer;
  readonly receive: (delivery: Delivery) => void;
  /** Set for a drain. */
  readonly guest?: GuestTerms;
}

const FIRST_POLL_MS = 25;
/** Ageing: a waiting delivery gains one priority level per this time. */
const PRIORITY_AGEING_MS = 10_000;

/**
 * One member of a consumer group. Reads the deliveries of the lanes it owns and hands them out, up to `prefetch` at a
 * time.
 */
export class Subscriber implements GuestConsumption {
  readonly #options: SubscriberOptions;
  readonly #ownership: LaneOwnership;
  readonly #reader: LaneReader;
  readonly #settler: DeliverySettler;
  readonly #readSession: SessionHolder;
  readonly #loop: Loop;
  readonly #open = new Map<number, QueueDelivery>();
  readonly #sql: ReturnType<typeof deliveryStatements>;
  readonly #due: Statement;
  #idleMs = FIRST_POLL_MS;
  #sweepAtMs = 0;
  #lastError: string | undefined;

  constructor(options: SubscriberOptions) {
    const { database, schema, group, subscription, lanes, observer, guest } = options;
    this.#options = options;
    this.#readSession = new SessionHolder(database, `consume ${subscription.group}`, {
      ...steadyPlans,
      ...limitLockWait(LEASE_LOCK_WAIT_MS),
    });
    this.#ownership = new LaneOwnership({
      database,
      ...(guest === undefined ? { session: () => this.#readSession.get() } : { guest: true }),
      schema,
      scope: group,
      scopeName: subscription.group,
      worker: subscription.worker,
      settings: lanes,
      observer,
    });
    this.#reader = new LaneReader({
      schema,
      table: "queue",
      messages: true,
      ownership: this.#ownership,
      ageingMs: PRIORITY_AGEING_MS,
      onIdle: () => this.#ownership.wake(),
    });
    this.#ownership.attach(this.#createLaneWorker());
    this.#settler = new DeliverySettler({
      database,
      schema,
      ownership: this.#ownership,
      reader: this.#reader,
      observer,
    });
    this.#sql = deliveryStatements(quoteSchema(schema));
    this.#due = dueStatement(quoteSchema(schema), "queue");
    this.#loop = new Loop({
      step: () => this.#step(),
      onError: (error) => this.#recordError(error),
      maxBackoffMs: 2_000,
    });
  }

  async start(): Promise<void> {
    await this.#ownership.start();
    await this.#loop.start();
  }

  get view(): GuestView {
    return this.#ownership.guestView;
  }

  get inFlight(): number {
    return this.#open.size;
  }

  get isIdle(): boolean {
    return this.#sweepAtMs > 0 && this.#open.size === 0 && this.#reader.isIdle;
  }

  sweep(): void {
    this.hint(undefined);
  }

  async isMoreDue(): Promise<boolean> {
    const { database, group } = this.#options;
    const { rows } = await database.run<{ due: boolean }>(this.#due, [group, this.#ownership.member ?? ""]);
    return rows[0]?.due === true;
  }

  /** Reads these lanes soon, or all lanes if undefined. Returns the lanes among them that this member owns. */
  hint(lanes: readonly number[] | undefined): number[] {
    const own = lanes?.filter((lane) => this.#ownership.claim(lane) !== undefined) ?? [];
    if (lanes === undefined) this.#sweepAtMs = 0;
    else this.#reader.hint(own);
    if (lanes === undefined || own.length > 0) {
      this.#idleMs = FIRST_POLL_MS;
      this.#loop.wake();
    }
    return own;
  }

  recheck(lanes: readonly number[]): void {
    this.#reader.recheck(lanes.filter((lane) => this.#ownership.claim(lane) !== undefined));
    this.#loop.wake();
  }

  async pause(): Promise<void> {
    await this.#loop.stop();
  }

  async close(): Promise<void> {
    await this.#loop.stop();
    await Promise.all([...this.#open.values()].map((delivery) => delivery.release()));
    await this.#settler.close();
    await this.#ownership.stop();
    await this.#settler.close(); // Settling during `stop()` may have reopened its sessions.
    await this.#readSession.close();
  }

  health(): { readonly ok: boolean; readonly detail?: string } {
    if (this.#lastError !== undefined) return { ok: false, detail: this.#lastError };
    return this.#ownership.remainingMs() > 0 ? { ok: true } : { ok: false, detail: "no lease yet" };
  }

  async #step(): Promise<number> {
    const { prefetch } = this.#options.subscription;
    const room = prefetch - this.#open.size;
    // Reads when half of the prefetch is free: one read per settled delivery would cost more than the delivery.
    // Settling wakes the loop.
    if (room < prefetch / 2 && this.#open.size > 0) return Infinity;
    if (systemClock.monotonicMs() >= this.#sweepAtMs) this.#reader.sweep();
    const session = await this.#readSession.get();
    const fetch = (limit: number): Promise<LaneRow[]> => this.#reader.fetch(session, limit);
    const rows = await (this.#options.guest?.budget.take(room, fetch) ?? fetch(room));
    this.#lastError = undefined;
    for (const row of rows) this.#deliver(row);
    if (rows.length > 0) {
      this.#idleMs = FIRST_POLL_MS;
      return 0;
    }
    return this.#nextIdleMs();
  }

  #nextIdleMs(): number {
    const nowMs = systemClock.monotonicMs();
    if (nowMs >= this.#sweepAtMs) {
      this.#sweepAtMs = nowMs + this.#idleMs;
      this.#idleMs = Math.min(this.#options.pollMs, this.#idleMs * 2);
    }
    return Math.min(this.#sweepAtMs - nowMs, this.#reader.nextDueMs() + 1);
  }

  // The reader drops the rows of lost lanes, but their deliveries would fill the prefetch forever, so they are
  // abandoned.
  #createLaneWorker(): LaneWorker {
    const reader = this.#reader;
    return {
      onLanesGained: (lanes) => reader.onLanesGained(lanes),
      isDrained: (lane) => reader.isDrained(lane),
      reads: () => reader.reads(),
      confirmReads: (xid, reads) => reader.confirmReads(xid, reads),
      onLanesLost: (lanes) => {
        reader.onLanesLost(lanes);
        const gone = new Set(lanes);
        for (const delivery of this.#open.values()) if (gone.has(delivery.lane)) delivery.abandon();
      },
    };
  }

  #deliver(row: LaneRow): void {
    const delivery: QueueDelivery = new QueueDelivery(row, this.#options.subscription.ordered, {
      ackInside: this.#sql.ackInside,
      ackInsideAll: this.#sql.ackInsideAll,
      ack: () => this.#settler.ack(row),
      retry: (options) => this.#settler.retry(row, options),
      onAcked: () => this.#reader.settle([row]),
      release: () => this.#reader.putBack([row], 0),
      onClosed: () => {
        if (this.#open.get(row.seq) === delivery) this.#open.delete(row.seq);
        this.#loop.wake();
      },
      isLost: () => this.#ownership.claimToSettle(row.lane) === undefined,
    });
    this.#open.set(row.seq, delivery);
    this.#options.receive(delivery);
  }

  #recordError(error: unknown): void {
    this.#lastError = errorText(error);
    this.#options.observer.emit("storage.failed", {
      doing: `reading deliveries for ${this.#options.subscription.group}`,
      error: this.#lastError,
      retryInMs: 100,
    });
  }
}

interface DeliveryCallbacks {
  readonly ackInside: Statement;
  readonly ackInsideAll: Statement;
  ack(): Promise<void>;
  retry(options: RetryOptions): Promise<void>;
  onAcked(): void;
  release(): void;
  /** Called after any settlement: the delivery no longer counts against the prefetch. */
  onClosed(): void;
  isLost(): boolean;
}

/** A delivery that was read from the queue table. */
class QueueDelivery implements Delivery {
  readonly attempt: number;
  readonly orderKey: string | null;
  readonly #row: LaneRow;
  readonly #callbacks: DeliveryCallbacks;
  readonly #abort = new AbortController();
  #settled = false;

  constructor(row: LaneRow, ordered: boolean, callbacks: DeliveryCallbacks) {
    this.#row = row;
    this.#callbacks = callbacks;
    this.attempt = row.attempts + 1;
    this.orderKey = ordered ? row.stream : null;
  }

  get message(): Message {
    if (this.#row.message !== null) return this.#row.message;
    if (this.#row.flaw !== undefined) throw this.#row.flaw;
    throw new SagaboxError(
      "ENVELOPE_INVALID",
      `Message ${this.#row.messageId} is no longer in the history, so it cannot be delivered.`,
    );
  }

  get lane(): number {
    return this.#row.lane;
  }

  get signal(): AbortSignal {
    if (this.#callbacks.isLost()) this.#abort.abort();
    return this.#abort.signal;
  }

  async ack(): Promise<void> {
    if (!this.#markSettled()) return;
    await this.#callbacks.ack().finally(() => this.#callbacks.onClosed());
  }

  get ackWith(): AckWith {
    const { lane, seq, messageId } = this.#row;
    const { ackInside, ackInsideAll } = this.#callbacks;
    return { statement: ackInside, params: [lane, String(seq), messageId], together: ackInsideAll };
  }

  readonly confirmAck = (): void => {
    if (!this.#markSettled()) return;
    this.#callbacks.onAcked();
    this.#callbacks.onClosed();
  };

  async retry(options: RetryOptions): Promise<void> {
    if (!this.#markSettled()) return;
    await this.#callbacks.retry(options).finally(() => this.#callbacks.onClosed());
  }

  async release(): Promise<void> {
    if (!this.#markSettled()) return;
    this.#callbacks.release();
    this.#callbacks.onClosed();
  }

  /** Another member owns the lane now, so this member will not settle the delivery. Frees its prefetch slot. */
  abandon(): void {
    this.#abort.abort();
    if (this.#markSettled()) this.#callbacks.onClosed();
  }

  #markSettled(): boolean {
    if (this.#settled) return false;
    this.#settled = true;
    return true;
  }
}

interface RetryRequest extends RetryOptions {
  readonly row: LaneRow;
}

interface DeliverySettlerOptions {
  readonly database: Database;
  readonly schema: string;
  readonly ownership: LaneOwnership;
  readonly reader: LaneReader;
  readonly observer: Observer;
}

/**
 * Settles deliveries in batches: acknowledgements that arrive while a statement runs go with the next one. They
 * commit asynchronously, because the inbox has the dedupe row; retries commit synchronously. A delivery whose row
 * another session has locked is settled when that lock is gone; until then it delays only its own key.
 */
class DeliverySettler {
  readonly #reader: LaneReader;
  readonly #sql: ReturnType<typeof deliveryStatements>;
  readonly #ackSession: SessionHolder;
  readonly #retrySession: SessionHolder;
  readonly #locks: LockTolerantSettling;
  readonly #ackBatch: WorkBatch<LaneRow>;
  readonly #retryBatch: WorkBatch<RetryRequest>;
  /** The retry request of each row until it is written. */
  readonly #retries = new WeakMap<LaneRow, RetryRequest>();

  constructor(options: DeliverySettlerOptions) {
    const { database, schema, reader } = options;
    this.#reader = reader;
    this.#sql = deliveryStatements(quoteSchema(schema));
    const settings = { ...settlingPlans, ...limitLockWait(SETTLE_LOCK_WAIT_MS) };
    this.#ackSession = new SessionHolder(database, "ack", { ...settings, synchronous_commit: "off" });
    this.#retrySession = new SessionHolder(database, "retry", settings);
    this.#locks = new LockTolerantSettling({ ...options, table: "queue", probe: this.#retrySession });
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
    await Promise.all([this.#ackSession.close(), this.#retrySession.close()]);
  }

  async #ackAll(rows: readonly LaneRow[]): Promise<void> {
    const left = await retryWithBackoff(() => this.#writeAcks(rows));
    if (left.length > 0) await this.#locks.keepTrying(left, this.#writeAcks);
  }

  async #retryAll(failures: readonly RetryRequest[]): Promise<void> {
    for (const failure of failures) this.#retries.set(failure.row, failure);
    const left = await retryWithBackoff(() => this.#writeRetries(failures.map(({ row }) => row)));
    if (left.length > 0) await this.#locks.keepTrying(left, this.#writeRetries);
  }

  readonly #writeAcks = async (rows: readonly LaneRow[]): Promise<readonly LaneRow[]> => {
    const { acked, ackedPast } = this.#sql;
    const settled = await this.#settleRows(this.#ackSession, rows, [acked, ackedPast], rowKeyParams);
    this.#reader.settle(settled.rows, settled.xid);
    return settled.left;
  };

  readonly #writeRetries = async (rows: readonly LaneRow[]): Promise<readonly LaneRow[]> => {
    const { retried, retriedPast } = this.#sql;
    const findRetry = (row: LaneRow): RetryRequest | undefined => this.#retries.get(row);
    const params = (own: readonly LaneRow[]): Param[] => [
      ...rowKeyParams(own),
      toArrayLiteral(own.map((row) => findRetry(row)?.delayMs ?? 0)),
      toArrayLiteral(own.map((row) => (findRetry(row)?.countsAsAttempt === false ? 0 : 1))),
      toArrayLiteral(own.map((row) => replaceNul(findRetry(row)?.error.slice(0, 2_000) ?? ""))),
    ];
    const settled = await this.#settleRows(this.#retrySession, rows, [retried, retriedPast], params);
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

/** Collects items that arrive while the previous batch is processed. */
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
