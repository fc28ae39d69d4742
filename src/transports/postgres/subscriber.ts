import { errorText } from "../../errors/index.ts";
import {
  LaneOwnership,
  LaneReader,
  type LaneRow,
  type LaneSettings,
  type LaneWorker,
} from "../../lanes/index.ts";
import { Loop, systemClock } from "../../runtime/index.ts";
import {
  LEASE_LOCK_WAIT_MS,
  limitLockWait,
  quoteSchema,
  SessionHolder,
  steadyPlans,
  type Database,
} from "../../storage/index.ts";
import type { Observer } from "../../telemetry/index.ts";
import type { Consumption, Delivery, Subscription } from "../../transport/index.ts";
import { DeliverySettler } from "./delivery-settler.ts";
import { QueueDelivery } from "./queue-delivery.ts";
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
}

const FIRST_POLL_MS = 25;
/** A low priority rises by one for each of these that it has waited. */
const PRIORITY_AGEING_MS = 10_000;

/** One member of a consumer group: reads the deliveries of the lanes it owns and hands them out, a few at a time. */
export class Subscriber implements Consumption {
  readonly #options: SubscriberOptions;
  readonly #ownership: LaneOwnership;
  readonly #reader: LaneReader;
  readonly #settler: DeliverySettler;
  readonly #isReading: SessionHolder;
  readonly #loop: Loop;
  readonly #open = new Map<number, QueueDelivery>();
  readonly #sql: ReturnType<typeof deliveryStatements>;
  #idleMs = FIRST_POLL_MS;
  #sweepAtMs = 0;
  #lastError: string | undefined;

  constructor(options: SubscriberOptions) {
    const { database, schema, group, subscription, lanes, observer } = options;
    this.#options = options;
    this.#isReading = new SessionHolder(database, `consume ${subscription.group}`, {
      ...steadyPlans,
      ...limitLockWait(LEASE_LOCK_WAIT_MS),
    });
    this.#ownership = new LaneOwnership({
      database,
      session: () => this.#isReading.get(),
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

  /** Looks there, or everywhere; returns the lanes among them that are its own. */
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
    await this.#settler.close(); // what was settled in between opened a connection; from here on nothing has a claim
    await this.#isReading.close();
  }

  health(): { readonly ok: boolean; readonly detail?: string } {
    if (this.#lastError !== undefined) return { ok: false, detail: this.#lastError };
    return this.#ownership.remainingMs() > 0 ? { ok: true } : { ok: false, detail: "no lease yet" };
  }

  async #step(): Promise<number> {
    const { prefetch } = this.#options.subscription;
    const room = prefetch - this.#open.size;
    // Half a prefetch at a time: one read per settled delivery would cost more than the delivery. Settling wakes us.
    if (room < prefetch / 2 && this.#open.size > 0) return Infinity;
    if (systemClock.monotonicMs() >= this.#sweepAtMs) this.#reader.sweep();
    const rows = await this.#reader.fetch(await this.#isReading.get(), room);
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

  // The reader forgets rows of lost lanes; the deliveries made of them would fill the prefetch for ever.
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
