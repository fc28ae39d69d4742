import { LaneOwnership, LaneReader, type LaneRow, type LaneSettings } from "../lanes/index.ts";
import { Loop, type Service, systemClock, yieldToEventLoop } from "../runtime/index.ts";
import {
  type Database,
  LEASE_LOCK_WAIT_MS,
  limitLockWait,
  SessionHolder,
  steadyPlans,
} from "../storage/index.ts";
import { BatchSender, type BatchSenderOptions } from "./batch-sender.ts";
import { planBatches, type SendBatch } from "./batches.ts";
import { printableErrorText } from "./failures.ts";
import { Settler } from "./settler.ts";

export interface PollingRelayOptions extends BatchSenderOptions {
  readonly database: Database;
  readonly schema: string;
  readonly worker: string;
  readonly lanes: LaneSettings;
}

/** What a read found, and how long to wait before the next one. */
interface ReadResult {
  readonly rows: readonly LaneRow[];
  readonly waitMs: number;
}

/** One batch is read while another is on its way. */
const MAX_CONCURRENT_BATCHES = 2;
/** Where one full batch follows another, the server finds its next question there when it has answered. */
const MAX_CONCURRENT_READS = 2;
/**
 * All that is read ahead, about to leave or on its way: behind a slow broker one read at a time is enough, and so is it for
 * large messages.
 */
const MAX_BATCHES_IN_FLIGHT = 4;

/** Takes the due rows of the lanes it owns through the transport and settles them. */
export class PollingRelay implements Service {
  readonly #options: PollingRelayOptions;
  readonly #ownership: LaneOwnership;
  readonly #reader: LaneReader;
  readonly #settler: Settler;
  readonly #sender: BatchSender;
  readonly #reading: SessionHolder;
  readonly #pace: Pace;
  readonly #loop: Loop;
  readonly #batches = new Set<Promise<void>>();
  /** Batches that find out whether a broker is back; they take nobody's place. */
  readonly #trials = new Set<Promise<void>>();
  /** The reads that were begun before the batch before them was worked on. */
  readonly #ahead: Promise<ReadResult>[] = [];
  #fullInARow = 0;
  #sweepAtMs = 0;
  #hinted = false;

  constructor(options: PollingRelayOptions) {
    const { database, schema, worker, settings, lanes, destinations, observer } = options;
    this.#options = options;
    this.#reading = new SessionHolder(
      database,
      "relay",
      { ...steadyPlans, ...limitLockWait(LEASE_LOCK_WAIT_MS) },
      { knowsOrigin: true },
    );
    this.#ownership = new LaneOwnership({
      database,
      session: () => this.#reading.get(),
      schema,
      scope: 0,
      scopeName: "outbox",
      worker,
      settings: lanes,
      observer,
    });
    this.#reader = new LaneReader({
      schema,
      table: "outbox",
      messages: options.hop === undefined || options.spans?.enabled === true, // a trace is known by the message alone
      ownership: this.#ownership,
      ageingMs: settings.ageingMs,
      resting: () => destinations.listResting(),
      restMs: (topic) => destinations.restMs(topic),
      onIdle: () => this.#ownership.wake(),
    });
    this.#settler = new Settler({
      database,
      schema,
      ownership: this.#ownership,
      reader: this.#reader,
      relay: worker,
      hop: options.hop,
      observer,
    });
    this.#sender = new BatchSender(options, {
      ownership: this.#ownership,
      reader: this.#reader,
      settler: this.#settler,
    });
    // What waited for a destination is looked at again at once, whatever it was told before.
    destinations.onRecovery(() => this.recheck(this.#ownership.lanes()));
    this.#pace = new Pace({ pollMs: settings.pollMs, batchSize: settings.batchSize });
    this.#loop = new Loop({
      step: (signal) => this.#step(signal),
      onError: (error) => this.#reportFailure("reading the outbox", error),
    });
  }

  /** How many messages are fetched and not settled yet. */
  get inFlight(): number {
    return this.#reader.inFlight;
  }

  /** True while this process may believe in its lease. */
  get ready(): boolean {
    return this.#ownership.remainingMs() > 0;
  }

  get ownedLanes(): number {
    return this.#ownership.size;
  }

  /** Whether all these lanes are ours. */
  owns(lanes: readonly number[]): boolean {
    return lanes.every((lane) => this.#ownership.claim(lane) !== undefined);
  }

  /** Something was committed to these lanes. True when all of them are ours. */
  hint(lanes: readonly number[]): boolean {
    const own = lanes.filter((lane) => this.#ownership.claim(lane) !== undefined);
    if (own.length > 0) {
      this.#hinted = true;
      this.#reader.hint(own);
      this.#loop.wake();
    }
    return own.length === lanes.length;
  }

  /** Rows were changed by hand. */
  recheck(lanes: readonly number[]): void {
    this.#reader.recheck(lanes.filter((lane) => this.#ownership.claim(lane) !== undefined));
    this.#loop.wake();
  }

  /** Hints were lost, or lanes changed hands: look everywhere. */
  sweepAll(): void {
    this.#sweepAtMs = 0;
    this.#loop.wake();
    this.#ownership.wake();
  }

  async start(): Promise<void> {
    await this.#ownership.start();
    await this.#loop.start();
  }

  /** Takes nothing new, finishes what is on its way, gives the lanes back. */
  async stop(): Promise<void> {
    await this.#loop.stop();
    for (const ahead of this.#ahead.splice(0)) {
      const unused = await ahead.catch(() => undefined);
      if (unused !== undefined) this.#reader.putBack(unused.rows, 0);
    }
    await this.#settler.giveUpLocked();
    await Promise.all([...this.#batches, ...this.#trials]);
    await this.#ownership.stop();
    await Promise.all([this.#reading.close(), this.#settler.close()]);
  }

  async #step(stopping: AbortSignal): Promise<number> {
    const ahead = this.#ahead.shift();
    const { rows, waitMs } = await (ahead ?? this.#read());
    const isFull = rows.length >= this.#options.settings.batchSize;
    this.#fullInARow = isFull ? this.#fullInARow + 1 : 0;
    // It may have been made before the hint that this step was woken for.
    if (rows.length === 0) return ahead === undefined ? waitMs : 0;
    if (isFull && !stopping.aborted) await this.#readAhead();
    this.#startBatches(rows);
    return this.#ahead.length > 0 ? 0 : waitMs;
  }

  // Where there is a backlog the server looks for the next batches while this one is worked on here.
  async #readAhead(): Promise<void> {
    const readers = this.#fullInARow > 1 && !this.#reader.hasLargeMessages ? MAX_CONCURRENT_READS : 1;
    while (this.#ahead.length < readers) {
      const inHand = 1 + this.#batches.size + this.#ahead.length; // the one that was read is yet to leave
      if (this.#ahead.length > 0 && inHand >= MAX_BATCHES_IN_FLIGHT) break;
      const ahead = this.#read(readers);
      ahead.catch(() => undefined); // whoever takes it hears of it
      this.#ahead.push(ahead);
    }
    await yieldToEventLoop(); // the questions leave first
  }

  async #read(readers = 1): Promise<ReadResult> {
    if (this.#batches.size >= MAX_CONCURRENT_BATCHES) await Promise.race(this.#batches);
    const began = systemClock.monotonicMs();
    const everywhere = began >= this.#sweepAtMs;
    if (everywhere) this.#sweep(began);
    const hinted = this.#hinted;
    this.#hinted = false;
    const session = await this.#reading.get();
    const rows = await this.#reader.fetch(session, this.#options.settings.batchSize, readers);
    // A hint in vain may have come before the commit it spoke of, and what nobody spoke of may not be the last.
    if (rows.length === 0 ? hinted : everywhere) this.#restartPolling();
    if (rows.length === 0) return { rows, waitMs: this.#waitWhenIdle() };
    this.#options.observer.emit("relay.fetched", {
      count: rows.length,
      durationMs: systemClock.monotonicMs() - began,
    });
    return { rows, waitMs: this.#pace.recordRead(rows.length) };
  }

  // The lanes stay on the reader's list until they are read, so a read that fails loses nothing.
  #sweep(nowMs: number): void {
    this.#reader.sweep();
    this.#sweepAtMs = nowMs + this.#pace.nextPollMs();
  }

  #restartPolling(): void {
    this.#sweepAtMs = Math.min(this.#sweepAtMs, systemClock.monotonicMs() + this.#pace.restartPolling());
  }

  #waitWhenIdle(): number {
    return Math.min(
      this.#sweepAtMs - systemClock.monotonicMs(),
      this.#reader.nextDueMs() + 1,
      this.#options.destinations.nextMs() + 1,
    );
  }

  #startBatches(rows: readonly LaneRow[]): void {
    const { destinations, hop } = this.#options;
    if (hop !== undefined) return this.#startBatch({ rows }, this.#batches);
    const expired = rows.filter((row) => row.expired);
    const alive = expired.length === 0 ? rows : rows.filter((row) => !row.expired);
    const { lots, waiting } = planBatches(alive, destinations);
    for (const row of waiting) this.#reader.putBack([row], destinations.restMs(row.topic));
    for (const lot of lots)
      this.#startBatch(lot, lot === lots[0] && lot.trial === undefined ? this.#batches : this.#trials);
    if (expired.length > 0) this.#startBatch({ rows: expired }, this.#batches);
  }

  #startBatch(lot: SendBatch<LaneRow>, among: Set<Promise<void>>): void {
    const batch = this.#sender.deliver(lot).finally(() => {
      among.delete(batch);
      if (this.#reader.hasWork) this.#loop.wake();
    });
    among.add(batch);
  }

  #reportFailure(doing: string, error: unknown): void {
    this.#options.observer.emit("storage.failed", {
      doing,
      error: printableErrorText(error),
      retryInMs: 100,
    });
  }
}

/**
 * When the relay looks again. Hints say where something is, so it looks everywhere only now and then: less and less
 * often, up to the poll interval, and more often again while that finds what no hint had named. Under load it lingers
 * for a few milliseconds before the next read: an eager relay takes tiny batches and eats the writers' processor time.
 */
export class Pace {
  readonly #pollMs: number;
  readonly #batchSize: number;
  #idleMs = MIN_POLL_MS;
  #lingerMs = 0;

  constructor(options: { readonly pollMs: number; readonly batchSize: number }) {
    this.#pollMs = options.pollMs;
    this.#batchSize = options.batchSize;
  }

  /** A read found this many; returns how long to linger before the next one. */
  recordRead(count: number): number {
    if (count <= 2 || count >= this.#batchSize / 2) this.#lingerMs = Math.floor(this.#lingerMs / 2);
    else this.#lingerMs = Math.min(MAX_LINGER_MS, this.#lingerMs + 1);
    return this.#lingerMs;
  }

  /** It looks everywhere now; returns how long to wait before it does so again. */
  nextPollMs(): number {
    const waitMs = this.#idleMs;
    this.#idleMs = Math.min(this.#pollMs, this.#idleMs * 2);
    return waitMs;
  }

  /** Something may be coming that no hint will name: a window of short waits begins, with this one. */
  restartPolling(): number {
    this.#idleMs = MIN_POLL_MS;
    return this.nextPollMs();
  }
}

const MIN_POLL_MS = 25;
const MAX_LINGER_MS = 20;
