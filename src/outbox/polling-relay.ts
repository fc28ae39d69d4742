import { LaneOwnership, LaneReader, type LaneRow, type LaneSettings } from "../lanes/index.ts";
import { Loop, random, sleep, systemClock, type Service } from "../runtime/index.ts";
import { SessionHolder, steadyPlans, type Database } from "../storage/index.ts";
import { endSend, type Observer, type Spans } from "../telemetry/index.ts";
import type { LocalHop, Transport } from "../transport/index.ts";
import { countByType } from "./count-by-type.ts";
import type { Destinations } from "./destinations.ts";
import { deathOf, failureText } from "./failures.ts";
import { learn, lotsOf, type Lot } from "./lots.ts";
import type { OutboxSettings } from "./options.ts";
import { Pace } from "./pace.ts";
import { publishBatch, sortOutcomes, type Sorted } from "./publish-batch.ts";
import { tellBuried, tellFailed } from "./relay-reports.ts";
import { retryOrDie } from "./retry-or-die.ts";
import { Settler, type Dying, type Failed } from "./settler.ts";

export interface PollingRelayOptions {
  readonly database: Database;
  readonly schema: string;
  readonly worker: string;
  readonly transport: Transport;
  readonly hop?: LocalHop | undefined;
  readonly settings: OutboxSettings;
  readonly lanes: LaneSettings;
  readonly destinations: Destinations;
  readonly observer: Observer;
  readonly spans?: Spans;
}

/** One batch is read while another is on its way. */
const BATCHES_AT_ONCE = 2;
const ORPHAN_RECHECK_MS = 5_000;

/** Takes the due rows of the lanes it owns through the transport and settles them. */
export class PollingRelay implements Service {
  readonly #options: PollingRelayOptions;
  readonly #ownership: LaneOwnership;
  readonly #reader: LaneReader;
  readonly #settler: Settler;
  readonly #reading: SessionHolder;
  readonly #pace: Pace;
  readonly #loop: Loop;
  readonly #batches = new Set<Promise<void>>();
  /** Batches that find out whether a broker is back; they take nobody's place. */
  readonly #trials = new Set<Promise<void>>();
  #sweepAtMs = 0;
  #hinted = false;

  constructor(options: PollingRelayOptions) {
    const { database, schema, worker, settings, lanes, destinations, observer } = options;
    this.#options = options;
    this.#reading = new SessionHolder(database, "relay", steadyPlans);
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
      resting: () => destinations.resting(),
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
    });
    // What waited for a destination is looked at again at once, whatever it was told before.
    destinations.onRecovery(() => this.recheck(this.#ownership.lanes()));
    this.#pace = new Pace({ pollMs: settings.pollMs, batchSize: settings.batchSize });
    this.#loop = new Loop({
      step: () => this.#step(),
      onError: (error) => this.#troubled("reading the outbox", error),
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

  /** Something was committed to these lanes. True for those that are ours. */
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
  lookEverywhere(): void {
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
    await Promise.all([...this.#batches, ...this.#trials]);
    await this.#ownership.stop();
    await Promise.all([this.#reading.close(), this.#settler.close()]);
  }

  async #step(): Promise<number> {
    if (this.#batches.size >= BATCHES_AT_ONCE) await Promise.race(this.#batches);
    const began = systemClock.monotonicMs();
    const everywhere = began >= this.#sweepAtMs;
    if (everywhere) this.#sweep(began);
    const hinted = this.#hinted;
    this.#hinted = false;
    const rows = await this.#reader.fetch(await this.#reading.get(), this.#options.settings.batchSize);
    // A hint in vain may have come before the commit it spoke of, and what nobody spoke of may not be the last.
    if (rows.length === 0 ? hinted : everywhere) this.#beAttentive();
    if (rows.length === 0) return this.#nothingFound();
    this.#options.observer.tell("relay.fetched", {
      count: rows.length,
      durationMs: systemClock.monotonicMs() - began,
    });
    this.#begin(rows);
    return this.#pace.found(rows.length);
  }

  // The lanes stay on the reader's list until they are read, so a read that fails loses nothing.
  #sweep(nowMs: number): void {
    this.#reader.sweep();
    this.#sweepAtMs = nowMs + this.#pace.looked();
  }

  #beAttentive(): void {
    this.#sweepAtMs = Math.min(this.#sweepAtMs, systemClock.monotonicMs() + this.#pace.attentive());
  }

  #nothingFound(): number {
    return Math.min(
      this.#sweepAtMs - systemClock.monotonicMs(),
      this.#reader.nextDueMs() + 1,
      this.#options.destinations.nextMs() + 1,
    );
  }

  #begin(rows: readonly LaneRow[]): void {
    const { destinations, hop } = this.#options;
    if (hop !== undefined) return this.#go({ rows }, this.#batches);
    const expired = rows.filter((row) => row.expired);
    const alive = expired.length === 0 ? rows : rows.filter((row) => !row.expired);
    const { lots, waiting } = lotsOf(alive, destinations);
    for (const row of waiting) this.#reader.back([row], destinations.restMs(row.topic));
    for (const lot of lots)
      this.#go(lot, lot === lots[0] && lot.trial === undefined ? this.#batches : this.#trials);
    if (expired.length > 0) this.#go({ rows: expired }, this.#batches);
  }

  #go(lot: Lot<LaneRow>, among: Set<Promise<void>>): void {
    const batch = this.#deliver(lot).finally(() => {
      among.delete(batch);
      if (this.#reader.hungry) this.#loop.wake();
    });
    among.add(batch);
  }

  async #deliver(lot: Lot<LaneRow>): Promise<void> {
    const began = systemClock.monotonicMs();
    const expired = lot.rows.filter((row) => row.expired);
    const alive = lot.rows.filter((row) => !row.expired);
    if (expired.length > 0) await this.#bury(expired.map((row) => deathOf(row, "expired")));
    if (alive.length > 0) {
      await (this.#options.hop === undefined ? this.#publish({ ...lot, rows: alive }) : this.#hop(alive));
    }
    this.#options.observer.tell("relay.batch", {
      count: lot.rows.length,
      durationMs: systemClock.monotonicMs() - began,
    });
  }

  async #hop(rows: readonly LaneRow[]): Promise<void> {
    const began = systemClock.monotonicMs();
    const messages = rows.flatMap((row) => row.message ?? []);
    const sending = messages.length === 0 ? undefined : this.#options.spans?.send(messages, "relay");
    const settled = await this.#insist("handing a batch over", () => this.#settler.sent(rows));
    if (sending !== undefined) endSend(sending, () => undefined);
    this.#tellSent(rows, settled ?? [], systemClock.monotonicMs() - began);
  }

  async #publish(lot: Lot<LaneRow>): Promise<void> {
    const began = systemClock.monotonicMs();
    const { destinations, transport, settings, spans } = this.#options;
    const whole = this.#withoutOrphans(lot.rows).flatMap((row) =>
      row.message === null ? [] : [{ stream: row.stream, row, message: row.message }],
    );
    const outcomes = await publishBatch(transport, whole, {
      timeoutMs: settings.publishTimeoutMs,
      mayGoOn: () => this.#ownership.remainingMs() > 0,
      ...(spans === undefined ? {} : { traced: { spans, via: "relay" } }),
    });
    const rows = whole.map((item) => item.row);
    const { waitMs, outcomes: judged } = learn(destinations, { ...lot, rows }, outcomes);
    const sorted = sortOutcomes(rows, judged);
    for (const { row } of sorted.uncharged) this.#reader.back([row], waitMs(row));
    await this.#settle(sorted, systemClock.monotonicMs() - began);
  }

  // A row whose message was not found goes back, with its successors: the message may just be on its way into a younger
  // partition. If it is really gone, the log says so again and again.
  #withoutOrphans(rows: readonly LaneRow[]): readonly LaneRow[] {
    const orphans = rows.filter((row) => row.message === null);
    if (orphans.length === 0) return rows;
    const streams = new Set(orphans.map((row) => row.stream ?? row.seq));
    const back = rows.filter((row) => streams.has(row.stream ?? row.seq));
    this.#reader.back(back, ORPHAN_RECHECK_MS);
    this.#troubled("finding the message of an outbox row", new Error(`no message ${orphans[0]?.messageId}`));
    return rows.filter((row) => !streams.has(row.stream ?? row.seq));
  }

  async #settle(sorted: Sorted, durationMs: number): Promise<void> {
    const decisions = retryOrDie(sorted, this.#options.settings.retry, random);
    if (sorted.sent.length > 0) {
      const settled = await this.#insist("settling a batch", () => this.#settler.sent(sorted.sent));
      this.#tellSent(sorted.sent, settled ?? [], durationMs);
    }
    if (decisions.failed.length > 0) await this.#fail(decisions.failed);
    if (decisions.dead.length > 0) await this.#bury(decisions.dead);
    this.#reader.back(sorted.skipped, 0);
  }

  async #fail(failed: readonly Failed[]): Promise<void> {
    await this.#insist("noting failures", () => this.#settler.failed(failed));
    tellFailed(this.#options.observer, failed);
  }

  async #bury(deaths: readonly Dying[]): Promise<void> {
    const settled = new Set((await this.#insist("burying messages", () => this.#settler.dead(deaths))) ?? []);
    tellBuried(
      this.#options.observer,
      deaths.filter((death) => settled.has(death.row)),
    );
  }

  // What went out must be noted. Only the loss of the lanes ends the trying: then others will send it again.
  async #insist<T>(doing: string, work: () => Promise<T>): Promise<T | undefined> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await work();
      } catch (error) {
        this.#troubled(doing, error);
        await sleep(Math.min(2_000, 50 * 2 ** Math.min(attempt, 6)) * (0.5 + random() / 2));
        if (this.#ownership.size === 0 && this.#ownership.remainingMs() <= 0) return undefined;
      }
    }
  }

  #tellSent(asked: readonly LaneRow[], settled: readonly LaneRow[], durationMs: number): void {
    const { observer } = this.#options;
    for (const entry of countByType(settled)) observer.tell("relay.published", { ...entry, durationMs });
    if (settled.length < asked.length) {
      observer.tell("relay.lost", { lanes: 0, count: asked.length - settled.length });
    }
  }

  #troubled(doing: string, error: unknown): void {
    this.#options.observer.tell("storage.failed", { doing, error: failureText(error), retryInMs: 100 });
  }
}
