import {
  type Budget,
  dueStatement,
  type GuestView,
  LaneOwnership,
  LaneReader,
  type LaneRow,
  type LaneSettings,
} from "../lanes/index.ts";
import { Loop, type Service, systemClock, yieldToEventLoop } from "../runtime/index.ts";
import {
  type Database,
  LEASE_LOCK_WAIT_MS,
  limitLockWait,
  quoteSchema,
  SessionHolder,
  type Statement,
  steadyPlans,
} from "../storage/index.ts";
import type { SendBatch } from "./batches.ts";
import { type BatchSender, type BatchSenderOptions, chooseSender } from "./batch-sender.ts";
import { PersistentSettler, printableErrorText, Settler, toDeadRow } from "./settler.ts";

export interface PollingRelayOptions extends BatchSenderOptions {
  readonly database: Database;
  readonly worker: string;
  readonly lanes: LaneSettings;
  /** Set for a drain, which takes only lanes that nobody owns and limits how many rows are read. */
  readonly guest?: Budget;
}

/** The rows of a read, and how long to wait before the next one. */
interface ReadResult {
  readonly rows: readonly LaneRow[];
  readonly waitMs: number;
}

/** One batch is read while another is sent. */
const MAX_CONCURRENT_BATCHES = 2;
/** With a backlog a second read is queued at the server, which starts it as soon as the first is done. */
const MAX_CONCURRENT_READS = 2;
/**
 * Limits batches that are read ahead or in flight. Behind a slow broker, or with large messages, one read at
 * a time is enough.
 */
const MAX_BATCHES_IN_FLIGHT = 4;
/** Rows of a batch that failed with an unexpected error are sent again after this time, in milliseconds. */
const BROKEN_RECHECK_MS = 1_000;

/** Sends the due rows of the lanes it owns through the transport and settles them. */
export class PollingRelay implements Service {
  readonly #options: PollingRelayOptions;
  readonly #ownership: LaneOwnership;
  readonly #reader: LaneReader;
  readonly #settler: Settler;
  readonly #persistent: PersistentSettler;
  readonly #sender: BatchSender;
  readonly #reading: SessionHolder;
  readonly #pace: Pace;
  readonly #loop: Loop;
  readonly #batches = new Set<Promise<void>>();
  /** Batches that test whether a broker is back. They do not count against MAX_CONCURRENT_BATCHES. */
  readonly #trials = new Set<Promise<void>>();
  /** Reads that were started before the previous batch was sent. */
  readonly #ahead: Promise<ReadResult>[] = [];
  readonly #due: Statement;
  readonly #endRecoveryHints: () => void;
  #fullInARow = 0;
  #sweepAtMs = 0;
  #hinted = false;

  constructor(options: PollingRelayOptions) {
    const { database, schema, worker, settings, lanes, destinations, observer, guest } = options;
    this.#options = options;
    this.#due = dueStatement(quoteSchema(schema), "outbox");
    const choice = chooseSender(options);
    this.#reading = new SessionHolder(
      database,
      "relay",
      { ...steadyPlans, ...limitLockWait(LEASE_LOCK_WAIT_MS) },
      { knowsOrigin: true },
    );
    this.#ownership = new LaneOwnership({
      database,
      // The reads of a guest hold no connection whose end could show that this process has died.
      ...(guest === undefined ? { session: () => this.#reading.get() } : { guest: true }),
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
      messages: choice.readsMessages,
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
      sent: choice.sent,
      observer,
    });
    this.#persistent = new PersistentSettler(this.#settler, this.#ownership, observer);
    this.#sender = choice.connect({
      ownership: this.#ownership,
      reader: this.#reader,
      settler: this.#persistent,
    });
    // Rows that wait for a destination are read again as soon as it recovers.
    this.#endRecoveryHints = destinations.onRecovery(() => this.recheck(this.#ownership.lanes()));
    this.#pace = new Pace({ pollMs: settings.pollIntervalMs, batchSize: settings.batchSize });
    this.#loop = new Loop({
      step: (signal) => this.#step(signal),
      onError: (error) => this.#reportFailure("reading the outbox", error),
    });
  }

  /** Number of messages that are fetched and not yet settled. */
  get inFlight(): number {
    return this.#reader.inFlight;
  }

  /** True while the lease of this process is valid. */
  get ready(): boolean {
    return this.#ownership.remainingMs() > 0;
  }

  /** True if nothing is due in the owned lanes and in flight here, as of the last `sweepAll`. */
  get isIdle(): boolean {
    const isSending = this.#batches.size + this.#trials.size + this.#ahead.length > 0;
    return this.#sweepAtMs > 0 && !isSending && this.#reader.isIdle;
  }

  /** For a guest: what it may work on. */
  get guestView(): GuestView {
    return this.#ownership.guestView;
  }

  /** True if a row is due in lanes that neither this relay nor a worker owns. */
  async isMoreDue(): Promise<boolean> {
    const { database } = this.#options;
    const { rows } = await database.run<{ due: boolean }>(this.#due, [0, this.#ownership.member ?? ""]);
    return rows[0]?.due === true;
  }

  get ownedLanes(): number {
    return this.#ownership.size;
  }

  /** Returns true if this relay owns all these lanes. */
  owns(lanes: readonly number[]): boolean {
    return lanes.every((lane) => this.#ownership.claim(lane) !== undefined);
  }

  /**
   * Reads these lanes soon, because rows were committed there. Returns true if this relay owns all of them.
   */
  hint(lanes: readonly number[]): boolean {
    const own = lanes.filter((lane) => this.#ownership.claim(lane) !== undefined);
    if (own.length > 0) {
      this.#hinted = true;
      this.#reader.hint(own);
      this.#loop.wake();
    }
    return own.length === lanes.length;
  }

  /** Reads the rows of these lanes again, also those that were not due before. */
  recheck(lanes: readonly number[]): void {
    this.#reader.recheck(lanes.filter((lane) => this.#ownership.claim(lane) !== undefined));
    this.#loop.wake();
  }

  /** Reads all lanes soon, because hints were lost or lanes have new owners. */
  sweepAll(): void {
    this.#sweepAtMs = 0;
    this.#loop.wake();
    this.#ownership.wake();
  }

  async start(): Promise<void> {
    await this.#ownership.start();
    await this.#loop.start();
  }

  /** Stops reading, waits for the batches in flight and releases the lanes. */
  async stop(): Promise<void> {
    await this.#loop.stop();
    for (const ahead of this.#ahead.splice(0)) {
      const unused = await ahead.catch(() => undefined);
      if (unused !== undefined) this.#reader.putBack(unused.rows, 0);
    }
    await this.#settler.giveUpLocked();
    await Promise.all([...this.#batches, ...this.#trials]);
    await this.#ownership.stop();
    if (this.#options.guest !== undefined) this.#endRecoveryHints(); // a drain makes a relay of its own
    await Promise.all([this.#reading.close(), this.#settler.close()]);
  }

  async #step(stopping: AbortSignal): Promise<number> {
    const ahead = this.#ahead.shift();
    const { rows, waitMs } = await (ahead ?? this.#read());
    const isFull = rows.length >= this.#options.settings.batchSize;
    this.#fullInARow = isFull ? this.#fullInARow + 1 : 0;
    // A read ahead may have started before the hint that woke this step, so read again at once.
    if (rows.length === 0) return ahead === undefined ? waitMs : 0;
    if (isFull && !stopping.aborted) await this.#readAhead();
    this.#startBatches(rows);
    return this.#ahead.length > 0 ? 0 : waitMs;
  }

  // With a backlog the server reads the next batches while this one is sent.
  async #readAhead(): Promise<void> {
    const readers = this.#fullInARow > 1 && !this.#reader.hasLargeMessages ? MAX_CONCURRENT_READS : 1;
    while (this.#ahead.length < readers) {
      const inFlight = 1 + this.#batches.size + this.#ahead.length; // 1 for the batch that was just read
      if (this.#ahead.length > 0 && inFlight >= MAX_BATCHES_IN_FLIGHT) break;
      const ahead = this.#read(readers);
      ahead.catch(() => undefined); // the step that takes it handles the error
      this.#ahead.push(ahead);
    }
    await yieldToEventLoop(); // lets the queries be sent first
  }

  async #read(readers = 1): Promise<ReadResult> {
    if (this.#batches.size >= MAX_CONCURRENT_BATCHES) await Promise.race(this.#batches);
    const began = systemClock.monotonicMs();
    const everywhere = began >= this.#sweepAtMs;
    if (everywhere) this.#sweep(began);
    const hinted = this.#hinted;
    this.#hinted = false;
    const session = await this.#reading.get();
    const { settings, guest } = this.#options;
    const fetch = (limit: number): Promise<LaneRow[]> => this.#reader.fetch(session, limit, readers);
    const rows = await (guest?.take(settings.batchSize, fetch) ?? fetch(settings.batchSize));
    // A hint without rows may have arrived before its commit, and rows found without a hint may be followed
    // by more.
    if (rows.length === 0 ? hinted : everywhere) this.#restartPolling();
    if (rows.length === 0) return { rows, waitMs: this.#waitWhenIdle() };
    this.#options.observer.emit("relay.fetched", {
      count: rows.length,
      durationMs: systemClock.monotonicMs() - began,
    });
    return { rows, waitMs: this.#pace.recordRead(rows.length) };
  }

  // The reader keeps the lanes on its list until they are read, so a failed read loses nothing.
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
    const { batches, trials, waiting } = this.#sender.plan(rows);
    for (const row of waiting) this.#reader.putBack([row], this.#options.destinations.restMs(row.topic));
    for (const batch of batches) this.#startBatch(batch, this.#batches);
    for (const batch of trials) this.#startBatch(batch, this.#trials);
  }

  #startBatch(batch: SendBatch<LaneRow>, among: Set<Promise<void>>): void {
    const sending = this.#send(batch).finally(() => {
      among.delete(sending);
      if (this.#reader.hasWork) this.#loop.wake();
    });
    among.add(sending);
  }

  // Never rejects: no caller awaits it, and a failing batch must not end the process.
  async #send(batch: SendBatch<LaneRow>): Promise<void> {
    try {
      await this.#sendAlive(batch);
    } catch (error) {
      this.#reader.putBack(batch.rows, BROKEN_RECHECK_MS);
      if (batch.trial !== undefined) this.#options.destinations.cancelTrial(batch.trial);
      this.#reportFailure("delivering a batch", error);
    }
  }

  async #sendAlive(batch: SendBatch<LaneRow>): Promise<void> {
    const began = systemClock.monotonicMs();
    const expired = batch.rows.filter((row) => row.expired);
    const alive = expired.length === 0 ? batch.rows : batch.rows.filter((row) => !row.expired);
    if (expired.length > 0)
      await this.#persistent.markDeadLettered(expired.map((row) => toDeadRow(row, "expired")));
    if (alive.length > 0) await this.#sender.deliver({ ...batch, rows: alive });
    this.#options.observer.emit("relay.batch", {
      count: batch.rows.length,
      durationMs: systemClock.monotonicMs() - began,
    });
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
 * Decides when the relay reads again. Hints name the lanes with new rows, so reads of all lanes become rarer,
 * up to the poll interval, and more frequent again while they find rows without a hint. Under load the relay
 * waits a few milliseconds before the next read: without that, tiny batches would take CPU time from the
 * writers.
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

  /** Records the number of rows of a read. Returns how long to wait before the next one, in milliseconds. */
  recordRead(count: number): number {
    if (count <= 2 || count >= this.#batchSize / 2) this.#lingerMs = Math.floor(this.#lingerMs / 2);
    else this.#lingerMs = Math.min(MAX_LINGER_MS, this.#lingerMs + 1);
    return this.#lingerMs;
  }

  /** Returns how long to wait after a read of all lanes before the next one, in milliseconds. */
  nextPollMs(): number {
    const waitMs = this.#idleMs;
    this.#idleMs = Math.min(this.#pollMs, this.#idleMs * 2);
    return waitMs;
  }

  /**
   * Restarts with short waits, because rows without a hint may follow. Returns the first wait in
   * milliseconds.
   */
  restartPolling(): number {
    this.#idleMs = MIN_POLL_MS;
    return this.nextPollMs();
  }
}

const MIN_POLL_MS = 25;
const MAX_LINGER_MS = 20;
