import { Consumer, type ConsumerDefinition, CrashLedger } from "../inbox/index.ts";
import { Budget } from "../lanes/index.ts";
import { option, type OptionsFrom, readOptions, type SettingsFrom } from "../options/index.ts";
import { randomToken, sleep, systemClock, withDeadline } from "../runtime/index.ts";
import { type Database, withBriefSessions } from "../storage/index.ts";
import type { Observer, TelemetryContext, TelemetryEvents, TelemetryName } from "../telemetry/index.ts";
import {
  type GuestConsumption,
  type GuestView,
  isLocalTransport,
  type LocalTransport,
  type Transport,
} from "../transport/index.ts";
import { drainMs, type Parts } from "./parts.ts";

export const drainOptions = {
  /** How many messages may be sent or handled in all; one that is sent and handled counts twice. Default: no limit. */
  maxMessages: option.number({ min: 1 }),
  /** When the call returns at the latest, counted from its start. Default "10s", from "200ms" to "1h". */
  deadline: option.duration({ default: "10s", min: 200, max: 3_600_000 }),
};

/** Options of `bus.drain()`. */
export interface DrainOptions extends OptionsFrom<typeof drainOptions> {}

/** What a drain did. Every figure counts committed work. */
export interface DrainResult {
  /** Scheduled messages that were due and are now in the outbox. */
  readonly scheduled: number;
  /** Messages that the relay sent. Those that the optimistic sender of this process sent are not counted. */
  readonly sent: number;
  /** Messages whose handler committed. */
  readonly handled: number;
  /** Messages without effect: duplicates, and types without a handler here. */
  readonly skipped: number;
  /** Attempts to send or handle a message that failed and will be repeated later. */
  readonly retried: number;
  readonly deadLettered: number;
  /** Transitions of sagas by timers, retries, local steps and pending input. Transitions by replies count as `handled`. */
  readonly sagaTransitions: number;
  /** True if a limit ended the drain while more was due that no worker owns: call again. */
  readonly more: boolean;
}

type Counts = Omit<DrainResult, "scheduled" | "sagaTransitions" | "more">;

/** How often the drain looks whether it has finished, in milliseconds. */
const LOOK_MS = 5;
/** How often the drain looks whether other drains have finished, in milliseconds. */
const LOOK_AGAIN_MS = 50;
/** Connections that handlers leave to the relay and the consumers. */
const HELD_BY_DRAIN = 2;

/** A part of the drain that reads lanes. */
interface Reader {
  readonly view: GuestView;
  readonly isIdle: boolean;
  readonly inFlight: number;
  sweep(): void;
  isMoreDue(): Promise<boolean>;
}

/** Reads the options of `bus.drain`. Throws OPTIONS_INVALID. */
export function readDrainOptions(options: DrainOptions): SettingsFrom<typeof drainOptions> {
  return readOptions("bus.drain", drainOptions, options);
}

/**
 * One pass over everything that is due: it moves scheduled messages, relays, handles, and runs sagas, until a round finds
 * nothing more. It works as a guest: it takes only lanes without an owner, while no worker runs.
 */
export class Drain {
  readonly #parts: Parts;
  readonly #definitions: readonly ConsumerDefinition[];
  readonly #stopping: AbortSignal;
  readonly #endMs: number;
  /** Nothing new is begun after this time, on the monotonic clock. */
  readonly #takeUntilMs: number;
  readonly #workMs: number;
  readonly #budget: Budget;
  readonly #database: Database;
  readonly #tally: Tally;
  readonly #readers: Reader[] = [];
  /** Ends a part, latest first. */
  readonly #endings: (() => Promise<void>)[] = [];
  readonly #worker: string;
  #runner: ReturnType<Parts["sagas"]["openRunner"]>["runner"] | undefined;
  #scheduled = 0;

  constructor(
    parts: Parts,
    definitions: readonly ConsumerDefinition[],
    { deadlineMs, maxMessages = Infinity }: SettingsFrom<typeof drainOptions>,
    stopping: AbortSignal,
  ) {
    const beganMs = systemClock.monotonicMs();
    this.#parts = parts;
    this.#definitions = definitions;
    this.#stopping = stopping;
    this.#endMs = beganMs + deadlineMs;
    this.#workMs = drainMs(deadlineMs);
    this.#takeUntilMs = beganMs + this.#workMs;
    this.#budget = new Budget(maxMessages);
    this.#database = withBriefSessions(parts.leased);
    this.#tally = new Tally(parts.observer);
    this.#worker = `${parts.settings.worker}/drain-${randomToken().slice(0, 8)}`;
  }

  async run(): Promise<DrainResult> {
    let isDone = false;
    try {
      await this.#start();
      isDone = await this.#work();
    } finally {
      await withDeadline(
        this.#giveBack(),
        Math.max(1, this.#endMs - systemClock.monotonicMs()),
        () => undefined,
      );
    }
    const more = !isDone && (await withDeadline(this.#isMoreDue(), LOOK_AGAIN_MS * 4, () => true));
    const { counts } = this.#tally;
    return { scheduled: this.#scheduled, ...counts, sagaTransitions: this.#runner?.transitions ?? 0, more };
  }

  async #start(): Promise<void> {
    const { sagas, openRelay } = this.#parts;
    const relay = openRelay({ database: this.#database, observer: this.#tally, guest: this.#budget });
    this.#readers.push({
      get view() {
        return relay.guestView;
      },
      get isIdle() {
        return relay.isIdle;
      },
      get inFlight() {
        return relay.inFlight;
      },
      sweep: () => relay.sweepAll(),
      isMoreDue: () => relay.isMoreDue(),
    });
    this.#endings.push(() => relay.stop());
    await relay.start();
    await this.#startConsumers();
    if (sagas.registry.all().length === 0) return;
    const { runner, end } = sagas.openRunner({ worker: this.#worker, stopDeadlineMs: this.#reserveMs });
    this.#runner = runner;
    this.#endings.push(() => runner.stop().finally(end));
    await runner.start();
  }

  /** How long handlers and local steps may still run when nothing new is begun. */
  get #reserveMs(): number {
    return Math.max(1, ((this.#endMs - this.#takeUntilMs) * 2) / 3);
  }

  // A broker would divide its partitions anew among the workers of a group, so its messages are left to them.
  async #startConsumers(): Promise<void> {
    const { transport, inbox, settings } = this.#parts;
    if (!isLocalTransport(transport) || this.#definitions.length === 0) return;
    const engine = { ...inbox, observer: this.#tally };
    const ledger = new CrashLedger({ engine, worker: settings.worker, leaseMs: settings.leaseMs * 0.7 });
    await ledger.start();
    const consumers = this.#definitions.map(
      (definition) =>
        new Consumer({
          engine,
          transport: this.#guestTransport(transport),
          definition,
          ledger,
          worker: settings.worker,
          service: settings.service,
          stopDeadlineMs: this.#reserveMs,
        }),
    );
    this.#endings.push(async () => {
      await Promise.all(consumers.map((consumer) => consumer.stop().catch(() => undefined)));
      await ledger.stop();
    });
    await Promise.all(consumers.map((consumer) => consumer.start()));
  }

  #guestTransport(local: LocalTransport): Transport & Pick<LocalTransport, "attach"> {
    return {
      name: local.name,
      capabilities: local.capabilities,
      open: () => local.open(),
      publish: (batch, options) => local.publish(batch, options),
      close: () => Promise.resolve(),
      attach: (home) => local.attach(home),
      subscribe: async (subscription, receive) => {
        const terms = { budget: this.#budget, database: this.#database };
        const consumption: GuestConsumption = await local.subscribeAsGuest(subscription, terms, receive);
        this.#readers.push(consumption);
        return consumption;
      },
    };
  }

  /** Resolves to true when nothing is due any more, to false when a limit was reached. */
  async #work(): Promise<boolean> {
    for (;;) {
      const before = this.#activity;
      await this.#moveScheduled();
      // Before the own lanes are read: a message moves from the outbox to the queue, never back, so it cannot be missed.
      const isElsewhere = await this.#isDueElsewhere();
      for (const reader of this.#readers) reader.sweep();
      this.#runner?.hint();
      while (!this.#isQuiet()) {
        if (this.#mustEnd()) return false;
        await sleep(LOOK_MS);
      }
      // All parts were quiet at one moment, and did nothing since they began to look: nothing is left.
      if (this.#activity !== before) continue;
      if (!isElsewhere) return true;
      if (this.#mustEnd()) return false;
      await sleep(LOOK_AGAIN_MS);
    }
  }

  get #activity(): number {
    return this.#tally.activity + this.#scheduled + (this.#runner?.transitions ?? 0);
  }

  #isQuiet(): boolean {
    const isRead = this.#readers.every(({ isIdle, view }) => isIdle && view !== "unknown");
    return isRead && this.#parts.sender.isIdle && (this.#runner?.isIdle ?? true);
  }

  #mustEnd(): boolean {
    if (this.#stopping.aborted || systemClock.monotonicMs() >= this.#takeUntilMs) return true;
    return this.#budget.isSpent && this.#readers.every(({ inFlight }) => inFlight === 0);
  }

  async #moveScheduled(): Promise<void> {
    while (!this.#mustEnd()) {
      const moved = await this.#parts.mover.move();
      this.#scheduled += moved;
      if (moved === 0) return;
    }
  }

  /** True if rows are due in lanes of other drains, each of which may just have looked at its lanes for the last time. */
  async #isDueElsewhere(): Promise<boolean> {
    for (const reader of this.#readers) {
      if (reader.view === "unknown") return true;
      if (reader.view === "guests" && (await reader.isMoreDue())) return true;
    }
    return false;
  }

  async #isMoreDue(): Promise<boolean> {
    for (const reader of this.#readers) if (await reader.isMoreDue()) return true;
    return (await this.#parts.mover.isDue()) || ((await this.#runner?.isDue()) ?? false);
  }

  async #giveBack(): Promise<void> {
    await Promise.all(this.#endings.map((end) => end().catch(() => undefined)));
    while (!this.#parts.sender.isIdle) await sleep(LOOK_MS);
  }
}

/** Limits the handlers of a bus whose worker does not run, so that a drain has connections left. */
export function limitHandlers({ inbox, database }: Pick<Parts, "inbox" | "database">): void {
  inbox.permits.limit = Math.max(1, database.size - HELD_BY_DRAIN);
}

/** Counts the committed work of a drain, and passes all events on. */
class Tally implements Observer {
  readonly counts = { sent: 0, handled: 0, skipped: 0, retried: 0, deadLettered: 0 } satisfies Counts;
  readonly #observer: Observer;

  constructor(observer: Observer) {
    this.#observer = observer;
  }

  get activity(): number {
    return Object.values(this.counts).reduce((sum, count) => sum + count, 0);
  }

  emit<Name extends TelemetryName>(
    name: Name,
    fields: TelemetryEvents[Name],
    context?: TelemetryContext,
  ): void {
    const kind = counted[name];
    if (kind !== undefined) this.counts[kind] += "count" in fields ? Number(fields.count) : 1;
    this.#observer.emit(name, fields, context);
  }
}

const counted: Partial<Record<TelemetryName, keyof Counts>> = {
  "relay.published": "sent",
  "relay.failed": "retried",
  "consumer.processed": "handled",
  "consumer.duplicate": "skipped",
  "consumer.skipped": "skipped",
  "consumer.passed_over": "skipped",
  "consumer.retried": "retried",
  "dead_letter.buried": "deadLettered",
};
