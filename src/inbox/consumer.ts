import { errorText, isSagaboxError, SagaboxError } from "../errors/index.ts";
import { after, backoffMs, type CancelTimer, type Service, withDeadline } from "../runtime/index.ts";
import type { Observer } from "../telemetry/index.ts";
import {
  assertCanBegin,
  type Beginning,
  type Consumption,
  type Delivery,
  isLocalTransport,
  type TopicRequest,
  type Transport,
} from "../transport/index.ts";
import type { CrashLedger, Lease } from "./crash-ledger.ts";
import type { InboxEngine } from "./engine.ts";
import {
  canShareBatch,
  type InFlightDelivery,
  isBatchableStatement,
  KeyOrder,
  runsAlone,
  trackDelivery,
} from "./in-flight-delivery.ts";
import { BatchProcessor } from "./process-batch.ts";
import { DeliveryProcessor } from "./process-delivery.ts";
import { toHandlerError } from "./receive-once.ts";
import { StatementCache } from "./receive-statement.ts";
import type { ConsumerDefinition } from "./registry.ts";
import { type Attempt, retryUntilDone } from "./attempt.ts";
import { Settlement } from "./settlement.ts";
import { maxBatchSize, StatementBatchSize } from "./statement-batch-size.ts";

export interface ConsumerParts {
  readonly engine: InboxEngine;
  readonly transport: Transport;
  readonly definition: ConsumerDefinition;
  /** Shared by all consumers of the process. Without it, messages that kill the process are not detected. */
  readonly ledger?: CrashLedger;
  /** While this lease has lapsed, the consumer leaves the messages of a broker to other workers. Default: `ledger`. */
  readonly lease?: Lease | undefined;
  readonly worker: string;
  readonly service: string;
  /** How long a stop waits for running handlers. Default 25,000. */
  readonly stopDeadlineMs?: number;
}

const SUSPENDED = {
  ok: false,
  detail:
    "suspended: the database did not answer for a lease, so other workers get its messages; it resumes when the database answers",
};

/**
 * Runs one consumer. It receives deliveries, lists them in the crash ledger, and handles a limited number at once:
 * different keys concurrently, messages of one key in order. Each delivery is settled after its effect has committed.
 */
export class Consumer implements Service {
  readonly name: string;
  readonly #parts: ConsumerParts;
  #current: ConsumerRun | undefined;
  /** Set while the consumer is suspended because the database does not answer. Resolves when its run has stopped. */
  #suspended: Promise<void> | undefined;
  #stopWatching: (() => void) | undefined;

  constructor(parts: ConsumerParts) {
    this.#parts = parts;
    this.name = parts.definition.name;
  }

  async start(): Promise<void> {
    if (this.#current !== undefined) return;
    const current = new ConsumerRun(this.#parts);
    this.#current = current;
    try {
      await current.start();
    } catch (error) {
      if (!isSagaboxError(error, "TRANSPORT_UNREACHABLE")) {
        this.#current = undefined;
        throw error;
      }
      this.#retryStart(current, error);
    }
    const { ledger, lease = ledger, transport } = this.#parts;
    // A transport in the database has leases of its own.
    if (isLocalTransport(transport)) return;
    this.#stopWatching = lease?.onLease({
      onLapse: () => this.#suspend(),
      onRecovery: () => void this.#resume(),
    });
  }

  // The broker still sees a connected consumer and would keep its messages here, where they cannot be handled.
  #suspend(): void {
    const current = this.#current;
    if (current === undefined || this.#suspended !== undefined) return;
    this.#suspended = current.stop(0).catch(() => undefined);
  }

  async #resume(): Promise<void> {
    const suspended = this.#suspended;
    await suspended;
    if (suspended === undefined || this.#suspended !== suspended) return;
    this.#suspended = undefined;
    const current = new ConsumerRun(this.#parts);
    this.#current = current;
    await current.start().catch((error: unknown) => this.#retryStart(current, toHandlerError(error)));
  }

  // Retries in the background, so that an unreachable broker does not block the start of the other services.
  #retryStart(current: ConsumerRun, error: Error, failures = 1): void {
    const { engine, transport } = this.#parts;
    const retryInMs = backoffMs({ firstMs: 500, maxMs: 15_000 }, failures);
    engine.observer.emit("transport.unreachable", {
      transport: transport.name,
      doing: `subscribing ${this.name}`,
      error: error.message,
      retryInMs,
    });
    after(
      retryInMs,
      () => {
        if (this.#current !== current) return;
        current.start().catch((laterError: unknown) => {
          if (this.#current === current) this.#retryStart(current, toHandlerError(laterError), failures + 1);
        });
      },
      { unref: true },
    );
  }

  /**
   * Stops receiving, waits for running handlers until the deadline, and returns the other deliveries to the transport.
   * Throws SHUTDOWN_TIMEOUT, after everything has stopped, if handlers were aborted.
   */
  async stop(): Promise<void> {
    const current = this.#current;
    if (current === undefined) return;
    this.#stopWatching?.();
    const isSuspended = this.#suspended !== undefined;
    this.#suspended = undefined;
    try {
      await current.stop();
    } catch (error) {
      if (!isSuspended) throw error; // handlers of a suspended run were aborted before the stop
    } finally {
      if (this.#current === current) this.#current = undefined;
    }
  }

  health(): { readonly ok: boolean; readonly detail?: string } {
    if (this.#suspended !== undefined) return SUSPENDED;
    return this.#current?.health() ?? { ok: false, detail: "not started" };
  }
}

/** How long a stop waits at most for aborted handlers to end. */
const MAX_ABORT_MS = 1_000;
const UNREADABLE_RETRY_MS = 60_000;
/** How long a batch of statements waits to fill up while a full one is running. */
const GATHER_MS = 2;

/** One run of a consumer, from its subscription to its stop. A resumed consumer starts a new run. */
class ConsumerRun {
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
  /** Running batches, at most `concurrency`. */
  #runningBatches = 0;
  /** Running deliveries whose statements can share a transaction. */
  #runningStatements = 0;
  #lastStartMs = 0;
  #arrivals: InFlightDelivery[] = [];
  /** Arrivals that are being listed in the crash ledger. */
  #listed: InFlightDelivery[] = [];
  #consumption: Consumption | undefined;
  #listing = false;
  #stopping = false;
  #stopped: Promise<void> | undefined;
  #cancelGathering: CancelTimer | undefined;

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
    // With tracing, each statement has a span of its own, so statements are not batched.
    const max = engine.spans.enabled ? 1 : maxBatchSize(definition.settings.concurrency);
    this.#batchSize = new StatementBatchSize(max, engine.clock);
    this.#single = new DeliveryProcessor(shared);
    this.#batches = new BatchProcessor(shared, { single: this.#single, batchSize: this.#batchSize });
  }

  async start(): Promise<void> {
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
    if (this.#stopping) await consumption.close(); // stopped while it was subscribing
  }

  /** Stops the run. Handlers that still run at the deadline are aborted, and SHUTDOWN_TIMEOUT is thrown. */
  stop(deadlineMs = this.#parts.stopDeadlineMs ?? 25_000): Promise<void> {
    this.#stopped ??= this.#stop(deadlineMs);
    return this.#stopped;
  }

  health(): { readonly ok: boolean; readonly detail?: string } {
    return this.#consumption?.health() ?? { ok: false, detail: "not subscribed" };
  }

  async #stop(deadlineMs: number): Promise<void> {
    this.#stopping = true;
    this.#cancelGathering?.();
    await this.#consumption?.pause();
    const rest = [...this.#order.drain(), ...this.#arrivals.splice(0)];
    const released = rest.map((held) => this.#release(held));
    const finished = Promise.all([...released, ...this.#runs]).then(() => undefined);
    const timeout = await withDeadline(finished, deadlineMs, () => this.#abortRuns());
    await this.#consumption?.close();
    if (timeout !== undefined) throw timeout;
  }

  async #abortRuns(): Promise<SagaboxError> {
    this.#givenUp.abort();
    const why = `Consumer "${this.#parts.definition.name}" was stopped before its handlers had finished.`;
    for (const attempt of this.#attempts) attempt.abort(new SagaboxError("BUS_STOPPED", why));
    const { stopDeadlineMs = 25_000 } = this.#parts;
    const abortMs = Math.min(MAX_ABORT_MS, stopDeadlineMs / 10);
    await withDeadline(Promise.all(this.#runs), abortMs, () => []);
    return new SagaboxError("SHUTDOWN_TIMEOUT", why);
  }

  #receive(delivery: Delivery): void {
    const held = this.#track(delivery);
    if (held === undefined) return;
    if (this.#stopping) return void this.#release(held);
    this.#held.add(held);
    this.#arrivals.push(held);
    this.#startReady();
  }

  // A delivery whose message is lost can be neither handled nor dead-lettered. It is retried and reported each time.
  #track(delivery: Delivery): InFlightDelivery | undefined {
    try {
      return trackDelivery(delivery, this.#parts);
    } catch (thrown) {
      const error = errorText(thrown).slice(0, 500);
      const { observer } = this.#parts.engine;
      observer.emit("storage.failed", { doing: "read a delivery", error, retryInMs: UNREADABLE_RETRY_MS });
      delivery.retry({ delayMs: UNREADABLE_RETRY_MS, countsAsAttempt: false, error }).catch(() => undefined);
      return undefined;
    }
  }

  /** Starts as many batches as possible. Called after each arrival, listing and finished batch. */
  #startReady(): void {
    if (this.#stopping) return;
    this.#orderArrivals();
    const { concurrency } = this.#parts.definition.settings;
    while (this.#runningBatches < concurrency && this.#order.ready > 0 && !this.#shouldWait()) {
      const batch = this.#order.take((first) => this.#maxSizeFor(first), canShareBatch);
      const [first] = batch;
      if (first === undefined) return;
      const statements = isBatchableStatement(first) ? batch.length : 0;
      this.#runningBatches += 1;
      this.#runningStatements += statements;
      const startedMs = this.#parts.engine.clock.monotonicMs();
      this.#lastStartMs = startedMs;
      const run = this.#run(batch).finally(() => {
        this.#runs.delete(run);
        this.#runningBatches -= 1;
        this.#runningStatements -= statements;
        if (statements > 0)
          this.#batchSize.recordDuration(statements, this.#parts.engine.clock.monotonicMs() - startedMs);
        this.#startReady();
      });
      this.#runs.add(run);
    }
  }

  #maxSizeFor(first: InFlightDelivery): number {
    if (runsAlone(first)) return 1;
    if (isBatchableStatement(first)) return this.#batchSize.max;
    return first.registration?.settings.batch?.size ?? 1;
  }

  // A message may run only after the crash ledger lists it. Arrivals are listed in groups, by one statement, while half
  // of the capacity is still waiting, so that running handlers do not wait for the ledger.
  #orderArrivals(): void {
    if (this.#arrivals.length === 0 || this.#listing) return;
    if (this.#parts.ledger === undefined) {
      for (const held of this.#arrivals.splice(0)) this.#order.push(held);
    } else if (this.#order.ready < Math.max(1, this.#capacity() / 2)) {
      this.#listing = true;
      void this.#listArrivals().then(() => {
        this.#listing = false;
        this.#startReady();
      });
    }
  }

  async #listArrivals(): Promise<void> {
    await Promise.resolve(); // a transport hands out several deliveries synchronously: list them together
    const { ledger, engine, definition } = this.#parts;
    this.#listed = this.#arrivals.splice(0);
    const isDone = await retryUntilDone(engine.observer, "crash ledger", this.#givenUp.signal, async () => {
      const suspects = await ledger?.listInFlight(definition.name, this.#inFlightIds());
      for (const held of this.#listed)
        held.crashes = held.id === undefined ? undefined : suspects?.get(held.id);
    });
    const listed = this.#listed.splice(0);
    if (this.#stopping || !isDone) await this.#releaseAll(listed);
    else for (const held of listed) this.#order.push(held);
  }

  #inFlightIds(): readonly string[] {
    return [...this.#held].flatMap((held) => held.id ?? []);
  }

  // Deliveries left over after a failed shared transaction are retried, each in its own transaction.
  async #run(batch: readonly InFlightDelivery[]): Promise<void> {
    const leftOver = new Set(await this.#runGuarded(batch));
    const done = leftOver.size === 0 ? batch : batch.filter((held) => !leftOver.has(held));
    for (const held of done) this.#held.delete(held);
    for (const held of leftOver) held.alone = true;
    this.#order.finish(done, [...leftOver]);
    if (leftOver.size > 0 && this.#stopping) await this.#releaseAll(this.#order.drain());
  }

  #takeSuccessors(held: InFlightDelivery): readonly InFlightDelivery[] {
    const key = held.delivery.orderKey;
    if (key === null) return [];
    const taken = this.#order.takeWaiting(held);
    for (const queue of [this.#listed, this.#arrivals]) {
      const successors = queue.filter((later) => later.delivery.orderKey === key);
      if (successors.length > 0)
        queue.splice(0, queue.length, ...queue.filter((later) => !successors.includes(later)));
      taken.push(...successors);
    }
    for (const later of taken) this.#held.delete(later);
    return taken;
  }

  /** Processes a batch under the lock of the crash ledger. Resolves with the deliveries that are left over. */
  async #runGuarded(batch: readonly InFlightDelivery[]): Promise<readonly InFlightDelivery[]> {
    const { ledger, definition } = this.#parts;
    const [first] = batch;
    if (ledger === undefined || first === undefined) return this.#process(batch);
    const { crashes, id } = first;
    if (crashes !== undefined && id !== undefined && crashes < definition.settings.maxCrashes) {
      const suspect = { consumer: definition.name, id, inFlightIds: () => this.#inFlightIds() };
      return (await ledger.runAlone(suspect, () => this.#process(batch))) ?? [];
    }
    const release = await ledger.acquireShared();
    return this.#process(batch).finally(release);
  }

  async #process(batch: readonly InFlightDelivery[]): Promise<readonly InFlightDelivery[]> {
    const [first] = batch;
    if (this.#stopping) await this.#releaseAll(batch);
    else if (batch.length > 1 && first?.registration !== undefined)
      return this.#batches.process(batch, first.registration);
    else if (first !== undefined) await this.#single.process(first);
    return [];
  }

  async #releaseAll(all: readonly InFlightDelivery[]): Promise<void> {
    await Promise.all(all.map((held) => this.#release(held)));
  }

  async #release(held: InFlightDelivery): Promise<void> {
    this.#held.delete(held);
    await this.#settlement.release(held);
  }

  /** True while the next batch should wait to fill up. */
  #shouldWait(): boolean {
    const first = this.#order.first;
    if (first === undefined) return false;
    if (isBatchableStatement(first)) return this.#shouldGather();
    const batch = first.registration?.settings.batch;
    if (batch === null || batch === undefined || batch.waitMs === 0) return false;
    if (first.refers) return false;
    const leftMs = first.arrivedMs + batch.waitMs - this.#parts.engine.clock.monotonicMs();
    if (leftMs <= 0 || this.#order.ready >= batch.size) return false;
    this.#startAfter(leftMs);
    return true;
  }

  // A running batch of statements usually ends soon, and meanwhile the next one fills up. The wait is limited.
  #shouldGather(): boolean {
    const { max } = this.#batchSize;
    if (this.#runningStatements < max || this.#order.ready >= max) return false;
    const leftMs = this.#lastStartMs + GATHER_MS - this.#parts.engine.clock.monotonicMs();
    if (leftMs <= 0) return false;
    this.#startAfter(leftMs);
    return true;
  }

  #startAfter(ms: number): void {
    this.#cancelGathering?.();
    this.#cancelGathering = after(ms, () => this.#startReady());
  }

  /** How many deliveries can run at once when all batches are full. */
  #capacity(): number {
    const { settings, handlers } = this.#parts.definition;
    const sizes = [...handlers.values()].map(({ settings: { batch }, work }) =>
      work.kind === "statement" ? 2 : (batch?.size ?? 1),
    );
    return settings.concurrency * Math.max(1, ...sizes);
  }
}

/**
 * The subscription to one topic. The first consumer of a command topic also gets the commands that were published before
 * it existed; a second consumer does not execute them again.
 */
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

/** Reports where a new consumer begins, because one that begins at "now" does not get earlier messages. */
function emitBeginnings(observer: Observer, consumer: string, begun: readonly Beginning[] | undefined): void {
  for (const { topic, from } of begun ?? []) {
    observer.emit("consumer.began", {
      consumer,
      topic,
      from: typeof from === "object" ? from.time.toISOString() : from,
    });
  }
}
