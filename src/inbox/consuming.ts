import { errorText, SagaboxError } from "../errors/index.ts";
import { after, type CancelTimer, withDeadline } from "../runtime/index.ts";
import type { Observer } from "../telemetry/index.ts";
import {
  assertCanBegin,
  type Beginning,
  type Consumption,
  type Delivery,
  type TopicRequest,
} from "../transport/index.ts";
import type { Attempt } from "./attempt.ts";
import type { ConsumerParts } from "./consumer.ts";
import {
  canShareBatch,
  type InFlightDelivery,
  isQuick,
  runsAlone,
  trackDelivery,
} from "./in-flight-delivery.ts";
import { persist } from "./persist.ts";
import { BatchProcessor } from "./process-batch.ts";
import { DeliveryProcessor } from "./process-delivery.ts";
import { StatementCache } from "./receive-statement.ts";
import type { ConsumerDefinition } from "./registry.ts";
import { Settlement } from "./settlement.ts";
import { maxBatchSize, StatementBatchSize } from "./statement-batch-size.ts";

/** What was cut off has this long to end, out of what the stop keeps back for the rest. */
const MAX_ENDING_MS = 1_000;
const UNREADABLE_MS = 60_000;
/** How long statements wait for others to share a transaction with, while as many of them are running. */
const GATHER_MS = 2;

/** One life of a consumer, from its subscription to its end. */
export class Consuming {
  readonly #parts: ConsumerParts;
  readonly #order = new KeyOrder<InFlightDelivery>((held) => held.delivery.orderKey);
  readonly #held = new Set<InFlightDelivery>();
  readonly #runs = new Set<Promise<void>>();
  readonly #attempts = new Set<Attempt>();
  readonly #givenUp = new AbortController();
  readonly #settlement: Settlement;
  readonly #single: DeliveryProcessor;
  readonly #batches: BatchProcessor;
  readonly #batchSize: StatementBatchSize;
  /** Of `concurrency`: what shares a transaction counts as one. */
  #busy = 0;
  /** How many of what runs may share a transaction. */
  #quick = 0;
  #lastStartMs = 0;
  #arrivals: InFlightDelivery[] = [];
  /** Being listed in the ledger. */
  #nextBatch: InFlightDelivery[] = [];
  #consumption: Consumption | undefined;
  #listing = false;
  #stopping = false;
  #ended: Promise<void> | undefined;
  #waitingForMore: CancelTimer | undefined;

  constructor(parts: ConsumerParts) {
    this.#parts = parts;
    const { engine, definition } = parts;
    this.#settlement = new Settlement({
      engine,
      consumer: definition.name,
      givenUp: this.#givenUp.signal,
      takeSuccessors: (held) => this.#takeSuccessors(held),
    });
    const statements = new StatementCache(engine.sql.schema);
    const shared = { engine, definition, settlement: this.#settlement, attempts: this.#attempts, statements };
    // Traced, each statement has a span of its own, which ends when it has.
    const most = engine.spans.enabled ? 1 : maxBatchSize(definition.settings.concurrency);
    this.#batchSize = new StatementBatchSize(most, engine.clock);
    this.#single = new DeliveryProcessor(shared);
    this.#batches = new BatchProcessor(shared, { single: this.#single, lotSize: this.#batchSize });
  }

  async begin(): Promise<void> {
    const { engine, transport, definition, worker, service } = this.#parts;
    const { settings, name, topics } = definition;
    const prefetch = settings.prefetch ?? Math.min(1_000, 2 * this.#capacity());
    const requests = topics.map((topic) => topicRequest(definition, topic));
    assertCanBegin(transport, requests);
    const consumption = await transport.subscribe(
      {
        group: name,
        topics: requests,
        prefetch,
        worker,
        service,
        ordered: settings.ordered,
      },
      (delivery) => this.#receive(delivery),
    );
    this.#consumption = consumption;
    emitBeginnings(engine.observer, name, consumption.begun);
    if (this.#stopping) await consumption.close(); // stopped while the broker was being looked for
  }

  end(deadlineMs = this.#parts.stopDeadlineMs ?? 25_000): Promise<void> {
    this.#ended ??= this.#end(deadlineMs);
    return this.#ended;
  }

  health(): { readonly ok: boolean; readonly detail?: string } {
    return this.#consumption?.health() ?? { ok: false, detail: "not subscribed" };
  }

  async #end(deadlineMs: number): Promise<void> {
    this.#stopping = true;
    this.#waitingForMore?.();
    await this.#consumption?.pause();
    const rest = [...this.#order.drain(), ...this.#arrivals.splice(0)];
    const givenBack = rest.map((held) => this.#giveBack(held));
    const finished = Promise.all([...givenBack, ...this.#runs]).then(() => undefined);
    const cutOff = await withDeadline(finished, deadlineMs, () => this.#giveUp());
    await this.#consumption?.close();
    if (cutOff !== undefined) throw cutOff;
  }

  async #giveUp(): Promise<SagaboxError> {
    this.#givenUp.abort();
    const why = `Consumer "${this.#parts.definition.name}" was stopped before its handlers had finished.`;
    for (const attempt of this.#attempts) attempt.end(new SagaboxError("BUS_STOPPED", why));
    const { stopDeadlineMs = 25_000 } = this.#parts;
    const endingMs = Math.min(MAX_ENDING_MS, stopDeadlineMs / 10);
    await withDeadline(Promise.all(this.#runs), endingMs, () => []);
    return new SagaboxError("SHUTDOWN_TIMEOUT", why);
  }

  #receive(delivery: Delivery): void {
    const held = this.#hold(delivery);
    if (held === undefined) return;
    if (this.#stopping) return void this.#giveBack(held);
    this.#held.add(held);
    this.#arrivals.push(held);
    this.#turn();
  }

  // A delivery that has lost its message can be neither handled nor buried; it stays, and people hear of it.
  #hold(delivery: Delivery): InFlightDelivery | undefined {
    try {
      return trackDelivery(delivery, this.#parts);
    } catch (thrown) {
      const error = errorText(thrown).slice(0, 500);
      const { observer } = this.#parts.engine;
      observer.emit("storage.failed", { doing: "read a delivery", error, retryInMs: UNREADABLE_MS });
      delivery.retry({ delayMs: UNREADABLE_MS, charged: false, error }).catch(() => undefined);
      return undefined;
    }
  }

  /** Starts what can start. Called whenever something arrived, was listed or ended. */
  #turn(): void {
    if (this.#stopping) return;
    this.#admit();
    const { concurrency } = this.#parts.definition.settings;
    while (this.#busy < concurrency && this.#order.ready > 0 && !this.#worthWaiting()) {
      const lot = this.#order.take((first) => this.#maxSizeFor(first), canShareBatch);
      const [first] = lot;
      if (first === undefined) return;
      const quick = isQuick(first) ? lot.length : 0;
      this.#busy += 1;
      this.#quick += quick;
      const startedMs = this.#parts.engine.clock.monotonicMs();
      this.#lastStartMs = startedMs;
      const run = this.#run(lot).finally(() => {
        this.#runs.delete(run);
        this.#busy -= 1;
        this.#quick -= quick;
        if (quick > 0)
          this.#batchSize.recordDuration(quick, this.#parts.engine.clock.monotonicMs() - startedMs);
        this.#turn();
      });
      this.#runs.add(run);
    }
  }

  #maxSizeFor(first: InFlightDelivery): number {
    if (runsAlone(first)) return 1;
    if (isQuick(first)) return this.#batchSize.most;
    return first.registration?.settings.batch?.size ?? 1;
  }

  // Nothing may run before the ledger lists it. The next wave is listed while half of the last one still waits, so
  // that one statement serves many messages and nobody waits for it.
  #admit(): void {
    if (this.#arrivals.length === 0 || this.#listing) return;
    if (this.#parts.ledger === undefined) {
      for (const held of this.#arrivals.splice(0)) this.#order.push(held);
    } else if (this.#order.ready < Math.max(1, this.#capacity() / 2)) {
      this.#listing = true;
      void this.#list().then(() => {
        this.#listing = false;
        this.#turn();
      });
    }
  }

  async #list(): Promise<void> {
    await Promise.resolve(); // a transport hands out several deliveries in one go: one wave
    const { ledger, engine, definition } = this.#parts;
    this.#nextBatch = this.#arrivals.splice(0);
    const listed = await persist(engine.observer, "crash ledger", this.#givenUp.signal, async () => {
      const suspects = await ledger?.list(definition.name, this.#ids());
      for (const held of this.#nextBatch)
        held.crashes = held.id === undefined ? undefined : suspects?.get(held.id);
    });
    const wave = this.#nextBatch.splice(0);
    if (this.#stopping || !listed) await this.#giveBackAll(wave);
    else for (const held of wave) this.#order.push(held);
  }

  #ids(): readonly string[] {
    return [...this.#held].flatMap((held) => held.id ?? []);
  }

  // What shared a transaction in vain goes on by itself, in a place of its own.
  async #run(lot: readonly InFlightDelivery[]): Promise<void> {
    const open = new Set(await this.#runGuarded(lot));
    const done = open.size === 0 ? lot : lot.filter((held) => !open.has(held));
    for (const held of done) this.#held.delete(held);
    for (const held of open) held.alone = true;
    this.#order.finish(done, [...open]);
    if (open.size > 0 && this.#stopping) await this.#giveBackAll(this.#order.drain());
  }

  #takeSuccessors(held: InFlightDelivery): readonly InFlightDelivery[] {
    const key = held.delivery.orderKey;
    if (key === null) return [];
    const taken = this.#order.withdraw(held);
    for (const queue of [this.#nextBatch, this.#arrivals]) {
      const ofKey = queue.filter((later) => later.delivery.orderKey === key);
      if (ofKey.length > 0) queue.splice(0, queue.length, ...queue.filter((later) => !ofKey.includes(later)));
      taken.push(...ofKey);
    }
    for (const later of taken) this.#held.delete(later);
    return taken;
  }

  /** Resolves with those that are still to be done. */
  async #runGuarded(lot: readonly InFlightDelivery[]): Promise<readonly InFlightDelivery[]> {
    const { ledger, definition } = this.#parts;
    const [first] = lot;
    if (ledger === undefined || first === undefined) return this.#process(lot);
    const { crashes, id } = first;
    if (crashes !== undefined && id !== undefined && crashes < definition.settings.maxCrashes) {
      const holds = (): readonly string[] => this.#ids();
      const alone = { consumer: definition.name, id, holds };
      return (await ledger.runAlone(alone, () => this.#process(lot))) ?? [];
    }
    const leave = await ledger.enter();
    return this.#process(lot).finally(leave);
  }

  async #process(lot: readonly InFlightDelivery[]): Promise<readonly InFlightDelivery[]> {
    const [first] = lot;
    if (this.#stopping) await this.#giveBackAll(lot);
    else if (lot.length > 1 && first?.registration !== undefined)
      return this.#batches.process(lot, first.registration);
    else if (first !== undefined) await this.#single.process(first);
    return [];
  }

  async #giveBackAll(all: readonly InFlightDelivery[]): Promise<void> {
    await Promise.all(all.map((held) => this.#giveBack(held)));
  }

  async #giveBack(held: InFlightDelivery): Promise<void> {
    this.#held.delete(held);
    await this.#settlement.release(held);
  }

  /** True while a batch may still fill up. */
  #worthWaiting(): boolean {
    const first = this.#order.first;
    if (first === undefined) return false;
    if (isQuick(first)) return this.#worthGathering();
    const batch = first.registration?.settings.batch;
    if (batch === null || batch === undefined || batch.waitMs === 0) return false;
    if (first.refers) return false;
    const leftMs = first.arrivedMs + batch.waitMs - this.#parts.engine.clock.monotonicMs();
    if (leftMs <= 0 || this.#order.ready >= batch.size) return false;
    this.#waitFor(leftMs);
    return true;
  }

  // A lot is on its way already and ends soon; one that does not end keeps nobody waiting.
  #worthGathering(): boolean {
    const { most } = this.#batchSize;
    if (this.#quick < most || this.#order.ready >= most) return false;
    const leftMs = this.#lastStartMs + GATHER_MS - this.#parts.engine.clock.monotonicMs();
    if (leftMs <= 0) return false;
    this.#waitFor(leftMs);
    return true;
  }

  #waitFor(ms: number): void {
    this.#waitingForMore?.();
    this.#waitingForMore = after(ms, () => this.#turn());
  }

  #capacity(): number {
    const { settings, handlers } = this.#parts.definition;
    const sizes = [...handlers.values()].map(({ settings: { batch }, work }) =>
      work.kind === "statement" ? 2 : (batch?.size ?? 1),
    );
    return settings.concurrency * Math.max(1, ...sizes);
  }
}

// A command that came before its first consumer is not lost; a second consumer does not carry out the old ones.
/** What a consumer asks of a transport for one of its topics. */
function topicRequest(
  { handlers, settings }: Pick<ConsumerDefinition, "handlers" | "settings">,
  topic: string,
): TopicRequest {
  const kinds = [...handlers.values()].flatMap((handler) =>
    handler.topic === topic ? [handler.contract.kind] : [],
  );
  const kind = kinds.includes("command") ? "command" : (kinds[0] ?? "event");
  return { topic, kind, from: settings.from ?? (kind === "command" ? "unclaimed" : "now") };
}

/** A consumer that hears nothing of what was published before it came would otherwise look broken. */
function emitBeginnings(observer: Observer, consumer: string, begun: readonly Beginning[] | undefined): void {
  for (const { topic, from } of begun ?? []) {
    observer.emit("consumer.began", {
      consumer,
      topic,
      from: typeof from === "object" ? from.time.toISOString() : from,
    });
  }
}

/**
 * What waits to run, key by key: items of different keys are free to run together, items of one key run one after
 * the other in the order they came. Taking an item locks its key; what comes later of that key waits behind it.
 */
export class KeyOrder<T extends object> {
  readonly #getKey: (item: T) => string | null;
  readonly #behind = new Map<string, T[]>();
  #ready: T[] = [];

  constructor(keyOf: (item: T) => string | null) {
    this.#getKey = keyOf;
  }

  /** How many could be taken now. */
  get ready(): number {
    return this.#ready.length;
  }

  push(item: T): void {
    const key = this.#getKey(item);
    const line = key === null ? undefined : this.#behind.get(key);
    if (line !== undefined) line.push(item);
    else {
      this.#ready.push(item);
      if (key !== null) this.#behind.set(key, []);
    }
  }

  /** The item that would be taken first. */
  get first(): T | undefined {
    return this.#ready[0];
  }

  /** The first item that is free, and others that `belong` with it, successors of the same key included. */
  take(mostOf: (first: T) => number, belong: (first: T, other: T) => boolean): T[] {
    const first = this.#ready.shift();
    if (first === undefined) return [];
    const most = mostOf(first);
    const taken = [first];
    this.#follow(first, first, taken, most, belong);
    if (most > 1) {
      this.#ready = this.#ready.filter((other) => {
        if (taken.length >= most || !belong(first, other)) return true;
        taken.push(other);
        this.#follow(first, other, taken, most, belong);
        return false;
      });
    }
    return taken;
  }

  /** The taken items are done: the next of each of their keys is free. Those of `again` are, before anything else. */
  finish(done: readonly T[], again: readonly T[] = []): void {
    if (again.length > 0) this.#putBack(again);
    const open = this.#listKeys(again);
    for (const key of this.#listKeys(done)) {
      if (open.has(key)) continue;
      const next = this.#behind.get(key)?.shift();
      if (next === undefined) this.#behind.delete(key);
      else this.#ready.push(next);
    }
  }

  /** Removes and returns what waits behind a taken item. */
  withdraw(item: T): T[] {
    const key = this.#getKey(item);
    return key === null ? [] : (this.#behind.get(key)?.splice(0) ?? []);
  }

  /** Removes and returns everything that was not taken. */
  drain(): T[] {
    const free = this.#ready.splice(0);
    const behind = [...this.#behind.values()].flatMap((line) => line.splice(0));
    this.finish(free);
    return [...free, ...behind];
  }

  #putBack(items: readonly T[]): void {
    const heads: T[] = [];
    const later: T[] = [];
    const seen = new Set<string | null>();
    for (const item of items) {
      const key = this.#getKey(item);
      (key !== null && seen.has(key) ? later : heads).push(item);
      seen.add(key);
    }
    this.#ready.unshift(...heads);
    for (const item of later.toReversed()) this.#behind.get(this.#getKey(item) ?? "")?.unshift(item);
  }

  #follow(first: T, item: T, taken: T[], most: number, belong: (first: T, other: T) => boolean): void {
    const key = this.#getKey(item);
    const line = key === null ? undefined : this.#behind.get(key);
    while (line !== undefined && taken.length < most && line[0] !== undefined && belong(first, line[0])) {
      taken.push(line[0]);
      line.shift();
    }
  }

  #listKeys(items: readonly T[]): Set<string> {
    return new Set(items.map(this.#getKey).filter((key) => key !== null));
  }
}
