import { after, type Clock, random as systemRandom, systemClock, withDeadline } from "../runtime/index.ts";
import type { Observer } from "../telemetry/index.ts";
import {
  type Admittance,
  type Breaker,
  type BreakerSettings,
  cancelTrial,
  CLOSED,
  decideAdmittance,
  isOutdated,
  maxIdleMs,
  recordFailure,
  startTrial,
} from "./breaker.ts";

export interface DestinationsOptions {
  readonly breaker: BreakerSettings;
  readonly observer: Observer;
  readonly clock?: Clock;
  readonly random?: () => number;
  /** Runs something later, without keeping the process alive for it. */
  readonly later?: (delayMs: number, action: () => void) => void;
}

export interface Failure {
  readonly reason: "unreachable" | "unknown";
  readonly error: string;
}

export type DestinationState = "open" | "half-open" | "paused";

/** How soon a topic is looked at again whose rest has no known end. */
const RECHECK_MS = 1_000;

/**
 * What this process knows of each topic: whether its broker answers, and whether it is full. Shared by all who send, so
 * that one learns for all.
 */
export class Destinations {
  readonly doubts = new SuspectMessages();
  /** For what is in doubt: two that share a connection fail together, and nobody could tell whose fault it was. */
  readonly turns = new Turns();
  readonly #options: DestinationsOptions;
  readonly #clock: Clock;
  readonly #random: () => number;
  readonly #later: (delayMs: number, action: () => void) => void;
  readonly #breakers = new Map<string, Breaker>();
  readonly #openedMs = new Map<string, number>();
  readonly #pausedMs = new Map<string, number>();
  readonly #answeredMs = new Map<string, number>();
  readonly #listeners: (() => void)[] = [];
  #forgetting = false;

  constructor(options: DestinationsOptions) {
    this.#options = options;
    this.#clock = options.clock ?? systemClock;
    this.#random = options.random ?? systemRandom;
    this.#later = options.later ?? ((delayMs, action) => void after(delayMs, action, { unref: true }));
  }

  /** Told whenever a topic that rested flows again. */
  onRecovery(told: () => void): void {
    this.#listeners.push(told);
  }

  /** Whether anything may go there now. Changes nothing. */
  accepts(topic: string): boolean {
    return this.#admittance(topic) !== "none";
  }

  /** How much may go there now. Who is given a trial or a probe must say how it ended. */
  admit(topic: string): Admittance {
    const given = this.#admittance(topic);
    if (given !== "trial" && given !== "probe") return given;
    this.#breakers.set(topic, startTrial(this.#breakerFor(topic)));
    if (given === "probe") {
      this.#options.observer.emit("breaker.probing", { topic, open: this.#openCount() });
    }
    return given;
  }

  /** The broker said something about a message for this topic, be it no. */
  recordAnswer(topic: string): void {
    this.#answeredMs.set(topic, this.#clock.monotonicMs());
    const breaker = this.#breakers.get(topic);
    if (breaker === undefined) return;
    this.#breakers.delete(topic);
    if (breaker.kind !== "closed") this.#emitClosed(topic);
    this.#notifyRecovery();
  }

  /** So much waits at the broker that nothing more is sent to this topic until it is resumed. */
  pause(topic: string, depth: number): void {
    if (this.#pausedMs.has(topic)) return;
    this.#pausedMs.set(topic, this.#clock.monotonicMs());
    this.#options.observer.emit("destination.paused", { topic, depth });
  }

  /** `depth` is null when the broker no longer tells. */
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

  /** Topics whose broker has answered within this time. Forgets nothing: a message may be judged by an older answer. */
  listAnswered(withinMs: number): string[] {
    const sinceMs = this.#clock.monotonicMs() - withinMs;
    return [...this.#answeredMs].filter(([, atMs]) => atMs >= sinceMs).map(([topic]) => topic);
  }

  /** A batch for this topic failed by the broker's fault; returns how long its messages wait. */
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

  /** A trial ended without a word from the broker, or was never sent. */
  cancelTrial(topic: string): void {
    const breaker = this.#breakers.get(topic);
    if (breaker?.trial === true) {
      this.#breakers.set(topic, cancelTrial(breaker, this.#clock.monotonicMs()));
    }
  }

  /** A message failed without an answer; `guilty` when that was its own fault. */
  markSuspect(messageId: string, guilty?: true): void {
    this.doubts.recordFailure(messageId, this.#clock.monotonicMs(), guilty);
  }

  /** How long a message waits that was guilty before, and may be so again: nobody else has to wait with it. */
  suspectDelayMs(messageId: string): number {
    const { cooldownMs, maxCooldownMs } = this.#options.breaker;
    return Math.min(maxCooldownMs, cooldownMs * 2 ** Math.min(this.doubts.failureCount(messageId), 20));
  }

  /** Whether the broker has said something about another message of the topic since this one failed last. */
  hasAnsweredOthers({ topic, messageId }: { readonly topic: string; readonly messageId: string }): boolean {
    const failedMs = this.doubts.lastMs(messageId);
    return failedMs !== undefined && (this.#answeredMs.get(topic) ?? -Infinity) > failedMs;
  }

  /** Topics nothing is fetched for. */
  listResting(): string[] {
    if (this.#breakers.size + this.#pausedMs.size === 0) return [];
    const topics = new Set([...this.#breakers.keys(), ...this.#pausedMs.keys()]);
    return [...topics].filter((topic) => this.#admittance(topic) === "none");
  }

  /** How long messages for this topic have to wait, as far as is known. */
  restMs(topic: string): number {
    const breaker = this.#breakers.get(topic);
    if (breaker?.trial === true || this.#pausedMs.has(topic)) return RECHECK_MS;
    return breaker === undefined ? 0 : Math.max(0, breaker.untilMs - this.#clock.monotonicMs());
  }

  /** Milliseconds until the first rest is over. */
  nextMs(): number {
    let next = Infinity;
    for (const topic of this.listResting()) next = Math.min(next, this.restMs(topic));
    return next;
  }

  /** Every topic that does not flow, for people. */
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

  // Looked at while any is open, by a timer of its own: a process that only publishes has no loop that could.
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
    for (const told of this.#listeners) told();
  }

  #openCount(): number {
    return this.#openedMs.size;
  }
}

interface TurnsOptions {
  /** So long one waits for the one before it: a silent broker must not keep those of others. */
  readonly patienceMs?: number;
}

/** Lets one after the other begin, and tells each whether it had the time for itself. */
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
  /** It failed by itself although its broker answered others. */
  readonly guilty: boolean;
}

/** More are not remembered; who is forgotten begins anew. */
const MAX_SUSPECTS = 5_000;

/**
 * Messages that failed and got no answer. That is the broker's failure until proven otherwise; but a message can be what
 * ends the connection, and then everything that travels with it fails too.
 */
class SuspectMessages {
  readonly #suspects = new Map<string, SuspectMessage>();

  get isEmpty(): boolean {
    return this.#suspects.size === 0;
  }

  recordFailure(id: string, nowMs: number, guilty = this.isConfirmed(id)): void {
    const failures = this.failureCount(id) + 1;
    this.#suspects.delete(id); // the one that failed last is forgotten last
    this.#suspects.set(id, { failures, lastMs: nowMs, guilty });
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
    return this.#suspects.get(id)?.guilty === true;
  }

  /** When it failed last, or undefined if it has not. */
  lastMs(id: string): number | undefined {
    return this.#suspects.get(id)?.lastMs;
  }
}
