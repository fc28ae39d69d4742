import {
  after,
  backoffMs,
  type Clock,
  random as systemRandom,
  systemClock,
  withDeadline,
} from "../runtime/index.ts";
import type { Observer } from "../telemetry/index.ts";

export interface DestinationsOptions {
  readonly breaker: BreakerSettings;
  readonly observer: Observer;
  readonly clock?: Clock;
  readonly random?: () => number;
  /** Runs an action later, without keeping the process alive for it. */
  readonly later?: (delayMs: number, action: () => void) => void;
}

export interface Failure {
  readonly reason: "unreachable" | "unknown";
  readonly error: string;
}

export type DestinationState = "open" | "half-open" | "paused";

/** Recheck interval of a topic whose pause has no known end, in milliseconds. */
const RECHECK_MS = 1_000;

/**
 * The state of each topic in this process: whether its broker answers, and whether it is full. All senders of
 * the process share it.
 */
export class Destinations {
  readonly suspects = new SuspectMessages();
  /**
   * Sends suspect batches one at a time: two that share a connection fail together, and the cause would be
   * unknown.
   */
  readonly turns = new Turns();
  readonly #options: DestinationsOptions;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #later: (delayMs: number, action: () => void) => void;
  readonly #breakers = new Map<string, Breaker>();
  readonly #openedMs = new Map<string, number>();
  readonly #pausedMs = new Map<string, number>();
  readonly #answeredMs = new Map<string, number>();
  readonly #listeners = new Set<() => void>();
  #forgetting = false;

  constructor(options: DestinationsOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? systemRandom;
    this.#later = options.later ?? ((delayMs, action) => void after(delayMs, action, { unref: true }));
  }

  /** Calls the listener whenever a topic that was paused can be sent to again. Returns a function that removes it. */
  onRecovery(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Returns true if messages may be sent to the topic now. Changes nothing. */
  accepts(topic: string): boolean {
    return this.#admittance(topic) !== "none";
  }

  /**
   * Returns how much may be sent to the topic now. After a trial or a probe the caller must record its
   * outcome.
   */
  admit(topic: string): Admittance {
    const admittance = this.#admittance(topic);
    if (admittance !== "trial" && admittance !== "probe") return admittance;
    this.#breakers.set(topic, startTrial(this.#breakerFor(topic)));
    if (admittance === "probe") {
      this.#options.observer.emit("breaker.probing", { topic, open: this.#openCount() });
    }
    return admittance;
  }

  /** Records that the broker answered for a message of this topic, with success or a rejection. */
  recordAnswer(topic: string): void {
    this.#answeredMs.set(topic, this.#clock.monotonicMs());
    const breaker = this.#breakers.get(topic);
    if (breaker === undefined) return;
    this.#breakers.delete(topic);
    if (breaker.kind !== "closed") this.#emitClosed(topic);
    this.#notifyRecovery();
  }

  /** Stops sending to this topic, because the broker's queue is full, until it is resumed. */
  pause(topic: string, depth: number): void {
    if (this.#pausedMs.has(topic)) return;
    this.#pausedMs.set(topic, this.#clock.monotonicMs());
    this.#options.observer.emit("destination.paused", { topic, depth });
  }

  /** Resumes a paused topic. `depth` is null if the broker no longer reports it. */
  resume(topic: string, depth: number | null): void {
    const sinceMs = this.#pausedMs.get(topic);
    if (sinceMs === undefined) return;
    this.#pausedMs.delete(topic);
    const durationMs = this.#clock.monotonicMs() - sinceMs;
    this.#options.observer.emit("destination.resumed", { topic, depth, durationMs });
    this.#notifyRecovery();
  }

  listPaused(): string[] {
    return [...this.#pausedMs.keys()];
  }

  /**
   * Returns the topics whose broker has answered within this time, in milliseconds. Older answers are kept,
   * because suspect messages are judged by them.
   */
  listAnswered(withinMs: number): string[] {
    const sinceMs = this.#clock.monotonicMs() - withinMs;
    return [...this.#answeredMs].filter(([, atMs]) => atMs >= sinceMs).map(([topic]) => topic);
  }

  /** Records a batch that failed without an answer. Returns how long its messages wait, in milliseconds. */
  recordFailure(topic: string, failure: Failure, trial: boolean): number {
    const { breaker: settings, observer } = this.#options;
    const nowMs = this.#clock.monotonicMs();
    const before = this.#breakerFor(topic);
    const after = recordFailure(before, settings, { nowMs, random: this.#random, trial });
    this.#breakers.set(topic, after);
    const delayMs = Math.max(0, after.untilMs - nowMs);
    if (after === before) return delayMs;
    observer.emit("relay.paused", { topic, delayMs, ...failure });
    if (after.kind === "open") {
      if (before.kind === "closed") this.#openedMs.set(topic, nowMs);
      const { failures } = after;
      observer.emit("breaker.opened", { topic, failures, delayMs, open: this.#openCount(), ...failure });
      this.#forgetLater();
    }
    return delayMs;
  }

  /** Ends a trial without an answer of the broker. */
  cancelTrial(topic: string): void {
    const breaker = this.#breakers.get(topic);
    if (breaker?.trial === true) {
      this.#breakers.set(topic, cancelTrial(breaker, this.#clock.monotonicMs()));
    }
  }

  /** Records that a message failed without an answer. `isOwnFailure`: the message itself was the cause. */
  markSuspect(messageId: string, isOwnFailure?: true): void {
    this.suspects.recordFailure(messageId, this.#clock.monotonicMs(), isOwnFailure);
  }

  /**
   * Returns how long a message waits that caused a failure before, in milliseconds. Other messages do not
   * wait with it.
   */
  suspectDelayMs(messageId: string): number {
    const { cooldownMs, maxCooldownMs } = this.#options.breaker;
    const backoff = { firstMs: cooldownMs, maxMs: maxCooldownMs, jitter: 0 };
    return backoffMs(backoff, this.suspects.failureCount(messageId) + 1);
  }

  /** Returns true if the broker has answered for another message of the topic since this one failed last. */
  hasAnsweredOthers({ topic, messageId }: { readonly topic: string; readonly messageId: string }): boolean {
    const failedMs = this.suspects.lastMs(messageId);
    return failedMs !== undefined && (this.#answeredMs.get(topic) ?? -Infinity) > failedMs;
  }

  /** Returns the topics for which no rows are fetched. */
  listResting(): string[] {
    if (this.#breakers.size + this.#pausedMs.size === 0) return [];
    const topics = new Set([...this.#breakers.keys(), ...this.#pausedMs.keys()]);
    return [...topics].filter((topic) => this.#admittance(topic) === "none");
  }

  /** Returns how long messages for this topic have to wait, in milliseconds, as far as is known. */
  restMs(topic: string): number {
    const breaker = this.#breakers.get(topic);
    if (breaker?.trial === true || this.#pausedMs.has(topic)) return RECHECK_MS;
    return breaker === undefined ? 0 : Math.max(0, breaker.untilMs - this.#clock.monotonicMs());
  }

  /** Returns the milliseconds until the first resting topic can be tried, or Infinity. */
  nextMs(): number {
    let next = Infinity;
    for (const topic of this.listResting()) next = Math.min(next, this.restMs(topic));
    return next;
  }

  /** Returns all topics that are not sent to, for status pages. */
  states(): Record<string, DestinationState> {
    const states: Record<string, DestinationState> = {};
    for (const topic of this.#pausedMs.keys()) states[topic] = "paused";
    for (const [topic, { kind }] of this.#breakers) if (kind !== "closed") states[topic] = kind;
    return states;
  }

  #breakerFor(topic: string): Breaker {
    return this.#breakers.get(topic) ?? CLOSED;
  }

  #admittance(topic: string): Admittance {
    if (this.#pausedMs.has(topic)) return "none";
    const breaker = this.#breakers.get(topic);
    return breaker === undefined ? "all" : decideAdmittance(breaker, this.#clock.monotonicMs());
  }

  #emitClosed(topic: string): void {
    const durationMs = this.#openForMs(topic);
    this.#openedMs.delete(topic);
    this.#options.observer.emit("breaker.closed", { topic, durationMs, open: this.#openCount() });
  }

  // A timer, because a process that only publishes has no loop that could check for outdated breakers.
  #forgetLater(): void {
    if (this.#forgetting) return;
    this.#forgetting = true;
    this.#later(maxIdleMs(this.#options.breaker), () => {
      this.#forgetting = false;
      this.#forgetOutdated();
      if (this.#openCount() > 0) this.#forgetLater();
    });
  }

  #forgetOutdated(): void {
    const { breaker: settings, observer } = this.#options;
    for (const [topic, breaker] of this.#breakers) {
      if (!isOutdated(breaker, settings, this.#clock.monotonicMs())) continue;
      const durationMs = this.#openForMs(topic);
      this.#breakers.delete(topic);
      this.#openedMs.delete(topic);
      observer.emit("breaker.forgotten", { topic, durationMs, open: this.#openCount() });
    }
  }

  #openForMs(topic: string): number {
    return this.#clock.monotonicMs() - (this.#openedMs.get(topic) ?? 0);
  }

  #notifyRecovery(): void {
    for (const listener of this.#listeners) listener();
  }

  #openCount(): number {
    return this.#openedMs.size;
  }
}

interface TurnsOptions {
  /**
   * How long a batch waits for the previous one, in milliseconds. A silent broker must not block the batches
   * of others. Default 1,000.
   */
  readonly patienceMs?: number;
}

/** Runs tasks one after another, and reports to each whether it ran alone. */
export class Turns {
  readonly #patienceMs: number;
  #last: Promise<unknown> = Promise.resolve();
  #begun = 0;
  #inFlight = 0;

  constructor(options: TurnsOptions = {}) {
    this.#patienceMs = options.patienceMs ?? 1_000;
  }

  take<T>(work: () => Promise<T>): Promise<{ readonly result: T; readonly alone: boolean }> {
    const before = this.#last;
    const mine = withDeadline(before, this.#patienceMs, () => undefined).then(() => this.#run(work));
    this.#last = mine.catch(() => undefined);
    return mine;
  }

  async #run<T>(work: () => Promise<T>): Promise<{ readonly result: T; readonly alone: boolean }> {
    const turn = ++this.#begun;
    const wasFree = this.#inFlight++ === 0;
    try {
      const result = await work();
      return { result, alone: wasFree && turn === this.#begun };
    } finally {
      this.#inFlight--;
    }
  }
}

interface SuspectMessage {
  readonly failures: number;
  /** On the monotonic clock. */
  readonly lastMs: number;
  /** It failed alone although its broker answered others. */
  readonly isConfirmed: boolean;
}

/** Above this number the oldest suspect is dropped; its failures are then counted from zero. */
const MAX_SUSPECTS = 5_000;

/**
 * Messages that failed without an answer. Usually the broker is the cause, but a message can also break the
 * connection, and then every message sent with it fails too.
 */
class SuspectMessages {
  readonly #suspects = new Map<string, SuspectMessage>();

  get isEmpty(): boolean {
    return this.#suspects.size === 0;
  }

  recordFailure(id: string, nowMs: number, isConfirmed = this.isConfirmed(id)): void {
    const failures = this.failureCount(id) + 1;
    this.#suspects.delete(id); // the one that failed last is forgotten last
    this.#suspects.set(id, { failures, lastMs: nowMs, isConfirmed });
    const [oldest] = this.#suspects.keys();
    if (this.#suspects.size > MAX_SUSPECTS && oldest !== undefined) this.#suspects.delete(oldest);
  }

  clear(id: string): void {
    this.#suspects.delete(id);
  }

  failureCount(id: string): number {
    return this.#suspects.get(id)?.failures ?? 0;
  }

  isConfirmed(id: string): boolean {
    return this.#suspects.get(id)?.isConfirmed === true;
  }

  /** Returns when the message failed last, on the monotonic clock, or undefined if it has not failed. */
  lastMs(id: string): number | undefined {
    return this.#suspects.get(id)?.lastMs;
  }
}

/**
 * Circuit breaker of a destination. `closed`: messages are sent. After as many failed batches in a row as the
 * settings allow it is `open`: nothing is sent, and the waiting messages use up no attempts. After the
 * cool-down one message is sent and the breaker is `half-open`: an answer closes it, a failure opens it for
 * longer. A destination with fewer failures pauses briefly and is then tried with one batch at a time. An
 * open breaker that this process has not tried for long is outdated and removed, because another process may
 * send there now.
 */
export type BreakerKind = "closed" | "open" | "half-open";

export interface Breaker {
  readonly kind: BreakerKind;
  /** Failed batches in a row. */
  readonly failures: number;
  /** Number of times in a row that it has opened. */
  readonly trips: number;
  /** Nothing is sent before this time, in milliseconds on the monotonic clock. */
  readonly untilMs: number;
  /** A batch or a single message is in flight to test the broker; nothing else is sent until it is back. */
  readonly trial: boolean;
}

export interface BreakerSettings {
  readonly failures: number;
  readonly cooldownMs: number;
  readonly maxCooldownMs: number;
}

/** `trial`: all messages, in a separate batch. `probe`: one message. */
export type Admittance = "all" | "trial" | "probe" | "none";

export const CLOSED: Breaker = { kind: "closed", failures: 0, trips: 0, untilMs: 0, trial: false };

const FIRST_REST_MS = 100;
/** Longest poll interval of a relay, in milliseconds. Waiting messages have been tried within this time. */
const MAX_POLL_MS = 60_000;

export function decideAdmittance({ kind, failures, untilMs, trial }: Breaker, nowMs: number): Admittance {
  if (failures === 0) return "all";
  if (trial || untilMs > nowMs) return "none";
  return kind === "closed" ? "trial" : "probe";
}

/** Marks the breaker while a trial or probe is in flight. */
export function startTrial(breaker: Breaker): Breaker {
  return { ...breaker, kind: breaker.kind === "open" ? "half-open" : breaker.kind, trial: true };
}

/** Ends a trial that never reached the broker, so that the next batch can be the trial. */
export function cancelTrial(breaker: Breaker, nowMs: number): Breaker {
  const kind = breaker.kind === "half-open" ? "open" : breaker.kind;
  return { ...breaker, kind, untilMs: Math.max(breaker.untilMs, nowMs), trial: false };
}

/** How long an open breaker stays valid after its cool-down without being tried, in milliseconds. */
export function maxIdleMs({ maxCooldownMs }: BreakerSettings): number {
  return Math.max(MAX_POLL_MS, 2 * maxCooldownMs);
}

/**
 * Returns true if an open breaker is no longer valid. Waiting messages are tried as soon as the cool-down is
 * over, so a process that has tried nothing for long has lost its lanes to another one, which knows the
 * broker better.
 */
export function isOutdated(
  { kind, untilMs, trial }: Breaker,
  settings: BreakerSettings,
  nowMs: number,
): boolean {
  return kind === "open" && !trial && nowMs - untilMs >= maxIdleMs(settings);
}

/**
 * Records a failed batch. Batches that were in flight when the breaker opened change nothing; only a trial
 * does.
 */
export function recordFailure(
  breaker: Breaker,
  settings: BreakerSettings,
  {
    nowMs,
    random,
    trial,
  }: { readonly nowMs: number; readonly random: () => number; readonly trial: boolean },
): Breaker {
  if (breaker.kind !== "closed" && !trial) return breaker;
  const failures = breaker.failures + 1;
  const opens = breaker.kind !== "closed" || failures >= settings.failures;
  const trips = opens ? breaker.trips + 1 : 0;
  const waitMs = opens
    ? backoffMs({ firstMs: settings.cooldownMs, maxMs: settings.maxCooldownMs }, trips, random)
    : backoffMs({ firstMs: FIRST_REST_MS, maxMs: settings.cooldownMs }, failures, random);
  const untilMs = nowMs + Math.ceil(waitMs);
  return { kind: opens ? "open" : "closed", failures, trips, untilMs, trial: false };
}
