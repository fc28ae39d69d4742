import { errorText } from "../errors/index.ts";
import { after, type CancelTimer, Loop, randomToken, type Service, thisProcess } from "../runtime/index.ts";
import { toArrayLiteral } from "../storage/index.ts";
import type { InboxEngine } from "./engine.ts";
import { retryUntilDone } from "./attempt.ts";

export interface CrashLedgerOptions {
  readonly engine: InboxEngine;
  /** The name of this worker in logs and tables. */
  readonly worker: string;
  /** A process that has not renewed its row for this long counts as dead. Shorter than the lane lease. Default 20,000. */
  readonly leaseMs?: number;
}

/** Suspect messages by id, with the number of processes that died while they ran only that message. */
export type Suspects = ReadonlyMap<string, number>;

export interface LeaseListener {
  /** Called when this process could not renew its row for a whole lease. */
  readonly onLapse: () => void;
  /** Called when a renewal succeeds after a lapse. */
  readonly onRecovery: () => void;
}

/** A lease that this process renews in the database. */
export interface Lease {
  /** Adds a listener. Calls `onLapse` immediately if the lease has lapsed. Returns a function that removes the listener. */
  onLease(listener: LeaseListener): () => void;
}

const NO_SUSPECTS: Suspects = new Map();
/** The shortest deadline of a renewal, because a busy machine must not count as dead. */
const MIN_RENEWAL_DEADLINE_MS = 500;

/**
 * Finds messages that kill the process. The ids of all messages in flight are stored in a row before they run. If the
 * process dies, the messages still in its row are suspects. A suspect runs alone in its process, and the row says so: a
 * crash is counted only if that process dies as well. Other suspects run alone once, and are then cleared.
 */
export class CrashLedger implements Service, Lease {
  readonly #engine: InboxEngine;
  readonly #worker: string;
  readonly #leaseMs: number;
  readonly #lock = new ExclusiveLock();
  readonly #heartbeat: Loop;
  readonly #listeners = new Set<LeaseListener>();
  #lapseTimer: CancelTimer | undefined;
  #hasLapsed = false;
  #member = "";
  #stopped = new AbortController();

  constructor({ engine, worker, leaseMs = 20_000 }: CrashLedgerOptions) {
    this.#engine = engine;
    this.#worker = worker;
    this.#leaseMs = leaseMs;
    this.#heartbeat = new Loop({
      step: async () => {
        await this.#renew();
        return leaseMs / 4;
      },
      onError: (error) =>
        engine.observer.emit("storage.failed", {
          doing: "crash ledger",
          error: errorText(error).slice(0, 500),
          retryInMs: 0,
        }),
      maxBackoffMs: leaseMs / 4,
    });
  }

  async start(): Promise<void> {
    if (this.#heartbeat.running) return;
    this.#stopped = new AbortController();
    this.#member = `${this.#worker}.${randomToken().slice(0, 12)}`;
    await this.#renew();
    await this.#heartbeat.start();
  }

  /** Deletes the rows of this process. Stop the consumers first, or their messages become suspects. */
  async stop(): Promise<void> {
    if (!this.#heartbeat.running) return;
    this.#stopped.abort();
    this.#lapseTimer?.();
    await this.#heartbeat.stop();
    await this.#engine.database.run(this.#engine.sql.leave, [this.#member]);
  }

  // A process that cannot reach the database counts as dead here, while a broker still sees its connection.
  onLease(listener: LeaseListener): () => void {
    this.#listeners.add(listener);
    if (this.#hasLapsed) listener.onLapse();
    return () => this.#listeners.delete(listener);
  }

  /** Records the messages of dead processes as suspects. Call it when a member row has expired. */
  async recordCrashes(): Promise<void> {
    const { database, sql, observer } = this.#engine;
    const { rows } = await database.run<{ consumer: string; event_id: string; crashes: number }>(sql.notice, [
      this.#leaseMs,
    ]);
    for (const { consumer, event_id: id, crashes } of rows) {
      observer.emit("consumer.suspect", { consumer, id, crashes });
    }
  }

  /** Stores the ids of all messages that the consumer has in flight, before new ones run. Returns the suspects among them. */
  async listInFlight(consumer: string, ids: readonly string[]): Promise<Suspects> {
    const first = await this.#write(consumer, ids, false);
    if (!first.deaths) return first.suspects;
    await this.recordCrashes();
    return (await this.#write(consumer, ids, false)).suspects;
  }

  /** Waits until no suspect runs. Returns a function to call when the work is done. */
  acquireShared(): Promise<() => void> {
    return this.#lock.acquireShared();
  }

  /**
   * Runs a suspect while nothing else runs in this process, and stores that in its row. Afterwards the row lists all
   * messages in flight again. Resolves with undefined if the ledger was stopped first.
   */
  async runAlone<T>(
    { consumer, id, inFlightIds }: { consumer: string; id: string; inFlightIds: () => readonly string[] },
    work: () => Promise<T>,
  ): Promise<T | undefined> {
    const release = await this.#lock.acquireExclusive();
    const write = (ids: readonly string[], alone: boolean): Promise<boolean> =>
      retryUntilDone(this.#engine.observer, "crash ledger", this.#stopped.signal, () =>
        this.#write(consumer, ids, alone),
      );
    try {
      return (await write([id], true)) ? await work() : undefined;
    } finally {
      await write(inFlightIds(), false);
      release();
    }
  }

  async #renew(): Promise<void> {
    const { database, sql } = this.#engine;
    const deadlineMs = Math.max(MIN_RENEWAL_DEADLINE_MS, this.#leaseMs / 3); // time for another connection if this one hangs
    const params = [this.#member, this.#worker, this.#leaseMs, thisProcess.name];
    await database.run(sql.beat, params, { deadlineMs });
    this.#onRenewed();
    await this.recordCrashes();
  }

  #onRenewed(): void {
    this.#watchLease(this.#engine.leaseMs, () => {
      // A process that was paused could not renew its lease. It gets one more chance.
      this.#heartbeat.wake();
      this.#watchLease(this.#engine.leaseMs / 4, () => {
        this.#hasLapsed = true;
        for (const { onLapse } of this.#listeners) onLapse();
      });
    });
    if (!this.#hasLapsed) return;
    this.#hasLapsed = false;
    for (const { onRecovery } of this.#listeners) onRecovery();
  }

  #watchLease(ms: number, onLapse: () => void): void {
    this.#lapseTimer?.();
    if (Number.isFinite(ms)) this.#lapseTimer = after(ms, onLapse, { unref: true });
  }

  async #write(
    consumer: string,
    ids: readonly string[],
    alone: boolean,
  ): Promise<{ deaths: boolean; suspects: Suspects }> {
    const { database, sql } = this.#engine;
    const params = [this.#member, consumer, toArrayLiteral(ids), alone];
    const { rows } = await database.run<{ deaths: boolean; suspects: string }>(sql.list, params);
    const { deaths = false, suspects = "{}" } = rows[0] ?? {};
    if (suspects === "{}") return { deaths, suspects: NO_SUSPECTS };
    return { deaths, suspects: new Map(Object.entries(JSON.parse(suspects) as Record<string, number>)) };
  }
}

/** A lock held by many shared holders or one exclusive holder. First come, first served, so that neither kind starves. */
export class ExclusiveLock {
  readonly #waiting: { readonly exclusive: boolean; readonly grant: () => void }[] = [];
  #holders = 0;
  #isExclusive = false;

  /** Waits for the lock together with other shared holders. Returns the function that releases it. */
  acquireShared(): Promise<() => void> {
    return this.#acquire(false);
  }

  /** Waits until there is no other holder. Returns the function that releases the lock. */
  acquireExclusive(): Promise<() => void> {
    return this.#acquire(true);
  }

  async #acquire(exclusive: boolean): Promise<() => void> {
    if (this.#waiting.length > 0 || !this.#canGrant(exclusive)) {
      await new Promise<void>((grant) => this.#waiting.push({ exclusive, grant }));
    } else this.#addHolder(exclusive);
    let isHeld = true;
    return () => {
      if (isHeld) this.#release(exclusive);
      isHeld = false;
    };
  }

  #canGrant(exclusive: boolean): boolean {
    return !this.#isExclusive && (!exclusive || this.#holders === 0);
  }

  #addHolder(exclusive: boolean): void {
    this.#holders += 1;
    if (exclusive) this.#isExclusive = true;
  }

  #release(exclusive: boolean): void {
    this.#holders -= 1;
    if (exclusive) this.#isExclusive = false;
    for (
      let next = this.#waiting[0];
      next !== undefined && this.#canGrant(next.exclusive);
      next = this.#waiting[0]
    ) {
      this.#waiting.shift();
      this.#addHolder(next.exclusive);
      next.grant();
    }
  }
}
