// What a worker does at intervals besides its messages: measure, watch its consumers and clean up.
import { maintainMonths } from "../audit/index.ts";
import { forgetDeadLetters } from "../dead-letter/index.ts";
import { forgetInbox, inboxRetentionMs } from "../inbox/index.ts";
import { measureBacklog, measureDeadLetters, measureQueue } from "../outbox/index.ts";
import { forgetReplies } from "../requests/index.ts";
import { PeriodicService, ProcessWatch, systemClock, type Clock } from "../runtime/index.ts";
import { forgetSagas, measureSagas } from "../saga/index.ts";
import type { Observer } from "../telemetry/index.ts";
import { isLocalTransport } from "../transport/index.ts";
import type { Parts } from "./parts.ts";

/** How often backlogs, queues and the process are measured. */
const MEASURE_EVERY_MS = 5_000;
const MEASURE = { everyMs: MEASURE_EVERY_MS, backoff: { firstMs: 100, maxMs: MEASURE_EVERY_MS } };
/** Queries that read rows instead of an index run only in every sixth round. */
const ROWS_EVERY = 6;

type BacklogParts = Pick<Parts, "database" | "observer" | "transport"> & {
  readonly settings: Pick<Parts["settings"], "schema">;
  readonly relay: Pick<Parts["relay"], "inFlight">;
};

/** Measures the backlog of the outbox, the queue and the dead letters every five seconds and emits the figures. */
export class Backlog extends PeriodicService {
  readonly #parts: BacklogParts;
  /** Dead-letter groups of the last round. A group that has become empty is emitted once more, with count 0. */
  readonly #groups = new Map<string, { readonly consumer: string; readonly type: string }>();
  /** Queue depth by topic in the last round. A topic that has become empty is emitted once more, with depth 0. */
  #queued: ReadonlyMap<string, number> = new Map();
  #rounds = 0;

  constructor(parts: BacklogParts) {
    super(MEASURE);
    this.#parts = parts;
  }

  protected override async runRound(): Promise<void> {
    const { database, settings, relay, observer } = this.#parts;
    const { pending, oldestMs, deadLetters, unownedLanes } = await measureBacklog(database, settings.schema);
    const claimed = relay.inFlight;
    observer.emit("backlog.measured", { pending, claimed, oldestAgeMs: oldestMs, deadLetters, unownedLanes });
    if (this.#rounds++ % ROWS_EVERY === 0) {
      await this.#countDeadLetters();
      await this.#countQueue();
    }
  }

  /** Only for the PostgreSQL transport. The outbox's DepthWatch measures brokers. */
  async #countQueue(): Promise<void> {
    const { database, settings, observer, transport } = this.#parts;
    if (!isLocalTransport(transport)) return;
    const queued = await measureQueue(database, settings.schema);
    for (const topic of this.#queued.keys())
      if (!queued.has(topic)) observer.emit("depth.measured", { topic, depth: 0 });
    for (const [topic, depth] of queued) observer.emit("depth.measured", { topic, depth });
    this.#queued = queued;
  }

  async #countDeadLetters(): Promise<void> {
    const { database, settings, observer } = this.#parts;
    const empty = new Map(this.#groups);
    this.#groups.clear();
    for (const { consumer, type, count } of await measureDeadLetters(database, settings.schema)) {
      const key = JSON.stringify([consumer, type]);
      empty.delete(key);
      this.#groups.set(key, { consumer, type });
      observer.emit("dead_letters.measured", { consumer, type, count });
    }
    for (const group of empty.values()) observer.emit("dead_letters.measured", { ...group, count: 0 });
  }
}

/** Emits the number of saga instances by type and status every five seconds. Its database role must be able to read sagas. */
export class SagaBacklog extends PeriodicService {
  readonly #parts: Pick<Parts, "database" | "settings" | "observer">;

  constructor(parts: Pick<Parts, "database" | "settings" | "observer">) {
    super(MEASURE);
    this.#parts = parts;
  }

  protected override async runRound(): Promise<void> {
    const { database, settings, observer } = this.#parts;
    for (const counted of await measureSagas(database, settings.schema))
      observer.emit("sagas.measured", counted);
  }
}

/** Emits CPU, memory, event-loop and connection-pool figures every five seconds. */
export class Vitals extends PeriodicService {
  readonly #parts: Pick<Parts, "database" | "observer">;
  readonly #watch = new ProcessWatch();

  constructor(parts: Pick<Parts, "database" | "observer">) {
    super(MEASURE);
    this.#parts = parts;
  }

  override async start(): Promise<void> {
    this.#watch.start();
    await super.start();
  }

  override async stop(): Promise<void> {
    await super.stop();
    this.#watch.stop();
  }

  protected override async runRound(): Promise<void> {
    const { database, observer } = this.#parts;
    observer.emit("process.measured", this.#watch.read());
    const usage = database.usage?.();
    if (usage !== undefined) observer.emit("pool.measured", { max: database.size, ...usage });
  }
}

interface WatchedConsumer {
  readonly name: string;
  health(): { readonly ok: boolean; readonly detail?: string };
}

interface ConsumerWatchOptions {
  readonly consumers: readonly WatchedConsumer[];
  readonly observer: Observer;
  readonly clock?: Clock;
}

const CHECK_EVERY_MS = 1_000;
/** A consumer that is being rebalanced is idle for a moment. Only repeated failures count as an interruption. */
const CHECKS_IN_A_ROW = 3;

/** Emits one event when a consumer stops receiving, with the reason, and one when it receives again. */
export class ConsumerWatch extends PeriodicService {
  readonly #options: ConsumerWatchOptions;
  readonly #clock: Clock;
  readonly #down = new Map<string, { readonly sinceMs: number; looks: number }>();

  constructor(options: ConsumerWatchOptions) {
    super({ everyMs: CHECK_EVERY_MS });
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
  }

  protected override async runRound(): Promise<void> {
    this.check();
  }

  check(): void {
    const nowMs = this.#clock.monotonicMs();
    for (const consumer of this.#options.consumers) {
      const { ok, detail = "unknown" } = consumer.health();
      const down = this.#down.get(consumer.name);
      if (ok) this.#markUp(consumer.name, nowMs);
      else if (down === undefined) this.#down.set(consumer.name, { sinceMs: nowMs, looks: 1 });
      else if (++down.looks === CHECKS_IN_A_ROW) {
        this.#options.observer.emit("consumer.interrupted", { consumer: consumer.name, error: detail });
      }
    }
  }

  #markUp(consumer: string, nowMs: number): void {
    const down = this.#down.get(consumer);
    this.#down.delete(consumer);
    if (down === undefined || down.looks < CHECKS_IN_A_ROW) return;
    this.#options.observer.emit("consumer.resumed", { consumer, durationMs: nowMs - down.sinceMs });
  }
}

const CLEAN_EVERY_MS = 3_600_000;
/** Replies are kept for one day, for callers that repeat a request with the same id. */
const REPLIES_MS = 86_400_000;

/**
 * Deletes dead letters, dedupe rows, replies, flow events and sagas past their retention, once an hour. A dedupe row
 * outlives every message that could still be replayed.
 */
export class Janitor extends PeriodicService {
  readonly #parts: Parts;

  constructor(parts: Parts) {
    super({ everyMs: CLEAN_EVERY_MS });
    this.#parts = parts;
  }

  protected override async runRound(signal: AbortSignal): Promise<void> {
    const { database, deadLetters, inbox, settings, outbox, observer, flows } = this.#parts;
    const olderThanMs = inboxRetentionMs({
      retention: settings.inboxRetentionMs,
      deadLetters: settings.deadLetterRetentionMs,
      archive: outbox.retentionMs,
    });
    const letters = await forgetDeadLetters(deadLetters, {
      olderThanMs: settings.deadLetterRetentionMs,
      signal,
    });
    if (letters.count > 0) observer.emit("history.cleaned", { table: "dead_letter", ...letters });
    await forgetInbox({ ...inbox, database }, { olderThanMs, signal });
    const replies = await forgetReplies(database, settings.schema, { olderThanMs: REPLIES_MS, signal });
    if (replies > 0) observer.emit("history.cleaned", { table: "reply", count: replies });
    const events = await flows.forgetEvents({ olderThanMs: outbox.retentionMs, signal });
    if (events > 0) observer.emit("history.cleaned", { table: "flow_event", count: events });
    const { retentionMs } = settings.sagas;
    const sagas = await forgetSagas(database, settings.schema, { olderThanMs: retentionMs, signal });
    if (sagas.instances > 0)
      observer.emit("history.cleaned", { table: "saga_instance", count: sagas.instances });
    if (sagas.inputs > 0) observer.emit("history.cleaned", { table: "saga_input", count: sagas.inputs });
    const audit = { retentionMs: settings.audit.retentionMs, observer, signal };
    await maintainMonths(database, settings.schema, audit);
  }
}
