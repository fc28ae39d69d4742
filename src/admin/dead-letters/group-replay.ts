import type { By } from "../../audit/index.ts";
import {
  computeFingerprint,
  isSameFailure,
  type ReplayCandidate,
  replayDeadLetters,
  type ReplayedRow,
} from "../../dead-letter/index.ts";
import { streamFor } from "../../message/index.ts";
import { type Clock, sleep, systemClock } from "../../runtime/index.ts";
import { type Param, toArrayLiteral } from "../../storage/index.ts";
import { type DeadLetterAdmin, findWorkers } from "./dead-letter-admin.ts";
import type { DeadLetterGroup } from "./list-dead-letters.ts";
import { chunkSize, maxInFlight, planStages, type ReplaySettings, type Stage } from "./replay-options.ts";

/**
 * done: all dead letters were replayed · stopped: a failure came back · not running: no worker would process the messages ·
 * unknown yet: the replayed messages had no outcome within `wait` · interrupted: `signal` stopped the replay ·
 * incomplete: some dead letters wait for an earlier one of their key.
 */
export type ReplayVerdict = "done" | "incomplete" | "stopped" | "not running" | "unknown yet" | "interrupted";

/** Limits the rate of replayed messages over all groups. */
export class Pacer {
  readonly #clock: Clock;
  #nextMs = 0;

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** Waits until `count` messages may be replayed. Resolves with false if `signal` aborts first. */
  async waitTurn(count: number, perSecond: number, signal: AbortSignal | undefined): Promise<boolean> {
    const nowMs = this.#clock.monotonicMs();
    const waitMs = Math.max(0, this.#nextMs - nowMs);
    this.#nextMs = Math.max(this.#nextMs, nowMs) + (count / perSecond) * 1_000;
    return waitMs === 0 ? signal?.aborted !== true : sleep(waitMs, signal);
  }
}

export interface GroupResult {
  readonly verdict: ReplayVerdict;
  readonly why: string | null;
}

const MAX_SETTLE_MS = 2_000;

/** Replays the dead letters of one cause in stages, and stops when the failure comes back. */
export class GroupReplay {
  readonly group: DeadLetterGroup;
  readonly #admin: DeadLetterAdmin;
  readonly #settings: ReplaySettings;
  readonly #upTo: string;
  readonly #pacer: Pacer;
  readonly #inFlight: InFlightReplays;
  readonly #queue: ReplayQueue;
  readonly #stages: Stage[];
  readonly #by: By;
  #stage: Stage["name"] = "canary";
  result: GroupResult | undefined;

  constructor(
    admin: DeadLetterAdmin,
    settings: ReplaySettings,
    { group, upTo, pacer }: { readonly group: DeadLetterGroup; readonly upTo: string; readonly pacer: Pacer },
  ) {
    this.group = group;
    this.#admin = admin;
    this.#settings = settings;
    this.#upTo = upTo;
    this.#by = { actor: settings.actor, reason: settings.reason };
    this.#pacer = pacer;
    this.#inFlight = new InFlightReplays(admin);
    this.#queue = new ReplayQueue((after, limit) =>
      this.#readPage([after.keyOrder, after.writtenAt, after.messageId, limit]),
    );
    this.#stages = [...planStages(settings)];
  }

  get tally(): Tally {
    return this.#inFlight.tally;
  }

  /** Number of replayed messages without an outcome. */
  get waiting(): number {
    return this.#inFlight.size;
  }

  get stage(): Stage["name"] {
    return this.#stage;
  }

  /** Replays all dead letters that need not wait. Another call continues, after other groups have released keys. */
  async run(onProgress: () => void): Promise<void> {
    const [workers] = await findWorkers(this.#admin, [this.group.consumer]);
    if (workers?.why !== undefined) return this.#finish("not running", workers.why);
    for (let stage = this.#stages[0]; stage !== undefined; stage = this.#stages[0]) {
      this.#stage = stage.name;
      const more = await this.#runStage(stage, onProgress);
      if (this.result !== undefined || !more) return;
      this.#stages.shift();
    }
  }

  // Resolves with true if the stage is complete, with false if no dead letter can be replayed for now.
  async #runStage(stage: Stage, onProgress: () => void): Promise<boolean> {
    let [sent, inPass] = [0, 0];
    while (sent < stage.count) {
      if (!(await this.#canContinue())) return false;
      const room = Math.min(chunkSize(stage), stage.count - sent, maxInFlight(stage) - this.#inFlight.size);
      if (room <= 0) {
        await sleep(this.#inFlight.dueMs, this.#settings.signal);
        continue;
      }
      // After the ramp, consecutive messages of one key are replayed together; their rows keep the order.
      const page = await this.#queue.take(room, this.#inFlight.streams, stage.name === "rest");
      if (page.length > 0) {
        if (!(await this.#pacer.waitTurn(page.length, stage.perSecond, this.#settings.signal))) continue;
        const replayed = await replayDeadLetters(this.#admin.store, page, this.#by);
        await this.#admin.wake(replayed.map(({ lane }) => lane));
        this.#inFlight.add(replayed);
        sent += replayed.length;
        inPass += replayed.length;
        onProgress();
      } else if (this.#queue.isPassOver(inPass)) {
        if (!(await this.#drain())) return false;
        this.#queue.restart();
        if (inPass === 0) return false;
        inPass = 0; // keys whose first message was handled may have another one
      }
    }
    return this.#drain();
  }

  async #readPage(after: readonly Param[]): Promise<readonly Candidate[]> {
    const { names, params } = this.#settings.conditions;
    const { rows } = await this.#admin.store.database.run<Candidate>(
      this.#admin.store.sql.listInOrder(names),
      [this.group.fingerprint, this.#upTo, ...after, ...params],
    );
    return rows;
  }

  // Waits for the outcome of everything replayed so far.
  async #drain(): Promise<boolean> {
    while (this.#inFlight.size > 0) {
      if (!(await this.#canContinue())) return false;
      if (this.#inFlight.size > 0) await sleep(this.#inFlight.dueMs, this.#settings.signal);
    }
    return this.#canContinue();
  }

  async #canContinue(): Promise<boolean> {
    if (this.#inFlight.dueMs === 0) await this.#inFlight.poll();
    const why = reasonToStop(this.#stage, this.tally);
    if (why !== undefined) {
      this.#finish("stopped", why);
      await this.#awaitRemaining();
    } else if (this.#settings.signal?.aborted === true) this.#finish("interrupted", "it was interrupted");
    else if (this.#inFlight.silentMs > this.#settings.waitMs) await this.#giveUp();
    return this.result === undefined;
  }

  // Waits a short time for the outcomes of messages that were replayed together with the failed one.
  async #awaitRemaining(): Promise<void> {
    const untilMs = systemClock.monotonicMs() + Math.min(MAX_SETTLE_MS, this.#settings.waitMs);
    while (this.#inFlight.size > this.tally.failing && systemClock.monotonicMs() < untilMs) {
      if (!(await sleep(this.#inFlight.dueMs, this.#settings.signal))) return;
      await this.#inFlight.poll();
    }
  }

  async #giveUp(): Promise<void> {
    const [workers] = await findWorkers(this.#admin, [this.group.consumer]);
    const seconds = Math.round(this.#settings.waitMs / 1_000);
    const what = `${this.waiting} replayed messages have had no outcome for ${seconds} s`;
    if (workers?.why === undefined)
      this.#finish("unknown yet", `${what}; a worker runs, so it may be slow, or busy with earlier messages`);
    else this.#finish("not running", `${what}: ${workers.why}`);
  }

  #finish(verdict: ReplayVerdict, why: string): void {
    this.result = { verdict, why };
  }
}

interface Cursor {
  readonly keyOrder: string;
  readonly writtenAt: string;
  readonly messageId: string;
}

/** An open dead letter in the order of its message. */
export interface Candidate extends ReplayCandidate {
  /** The seq of the message. */
  readonly keyOrder: string;
  readonly written_at: string;
  /** True if an earlier dead letter of its key is open. */
  readonly waits: boolean;
}

/** Reads at most `limit` dead letters after the cursor, in the order of their messages. */
export type ReadCandidates = (after: Cursor, limit: number) => Promise<readonly Candidate[]>;

const START: Cursor = { keyOrder: "-2", writtenAt: "-infinity", messageId: "" };
const WINDOW = 500;
/** Upper bound for dead letters skipped in a row while replayed messages of their keys may be in flight. */
const MAX_SKIPPED = 2 * WINDOW;

/**
 * The dead letters of a cause in the order of their messages, in repeated passes. If one of a key must wait, the rest of
 * this key is skipped for the pass, so that no message overtakes an earlier one.
 */
export class ReplayQueue {
  readonly #read: ReadCandidates;
  #cursor = START;
  #window: readonly Candidate[] = [];
  #at = 0;
  #ended = false;
  #skipped = 0;
  readonly #skippedStreams = new Set<string>();

  constructor(read: ReadCandidates) {
    this.#read = read;
  }

  /**
   * Returns the next dead letters to replay, from one window. Skips streams in flight, and unless `together` takes only
   * one dead letter of each stream.
   */
  async take(limit: number, inFlight: ReadonlySet<string>, together: boolean): Promise<readonly Candidate[]> {
    if (this.#at >= this.#window.length) await this.#readWindow();
    const taken: Candidate[] = [];
    const keys = new Set<string>();
    for (; this.#at < this.#window.length && taken.length < limit; this.#at++) {
      const letter = this.#window[this.#at];
      if (letter === undefined) break;
      const stream = letter.key === null ? undefined : streamFor(letter.topic, letter.key);
      if (stream !== undefined) {
        const waits = letter.waits || inFlight.has(stream) || (!together && keys.has(stream));
        if (waits) this.#skippedStreams.add(stream);
        if (this.#skippedStreams.has(stream)) {
          this.#skipped += 1;
          continue;
        }
        keys.add(stream);
      }
      taken.push(letter);
    }
    if (taken.length > 0) this.#skipped = 0;
    return taken;
  }

  /** True at the end of a pass, or if it should end early because too many dead letters wait for replayed messages. */
  isPassOver(replayedInPass: number): boolean {
    const seen = this.#at >= this.#window.length;
    return (this.#ended && seen) || (replayedInPass > 0 && this.#skipped >= MAX_SKIPPED);
  }

  restart(): void {
    this.#cursor = START;
    this.#window = [];
    this.#at = 0;
    this.#ended = false;
    this.#skipped = 0;
    this.#skippedStreams.clear();
  }

  async #readWindow(): Promise<void> {
    this.#window = this.#ended ? [] : await this.#read(this.#cursor, WINDOW);
    this.#at = 0;
    this.#ended = this.#window.length < WINDOW;
    const last = this.#window.at(-1);
    if (last !== undefined)
      this.#cursor = { keyOrder: last.keyOrder, writtenAt: last.written_at, messageId: last.message_id };
  }
}

const MIN_POLL_MS = 25;
const MAX_POLL_MS = 500;

/** The replayed messages of one group whose outcome is not known yet. */
class InFlightReplays {
  readonly #admin: DeadLetterAdmin;
  readonly #clock: Clock;
  readonly #open = new Map<string, ReplayedRow>();
  readonly #failing = new Set<string>();
  #tally: Tally = { replayed: 0, handled: 0, diedSame: 0, diedOtherwise: 0, failing: 0, error: null };
  #polledMs = 0;
  #changedMs = 0;
  #pollMs = MIN_POLL_MS;

  constructor(admin: DeadLetterAdmin, clock: Clock = systemClock) {
    this.#admin = admin;
    this.#clock = clock;
  }

  get size(): number {
    return this.#open.size;
  }

  /** Streams with a message in flight. */
  get streams(): ReadonlySet<string> {
    return new Set([...this.#open.values()].flatMap(({ stream }) => (stream === null ? [] : [stream])));
  }

  get tally(): Tally {
    return { ...this.#tally, failing: this.#failing.size };
  }

  /** Milliseconds until the next poll. */
  get dueMs(): number {
    return Math.max(0, this.#polledMs + this.#pollMs - this.#clock.monotonicMs());
  }

  /** Milliseconds since the last outcome; 0 if nothing is in flight. */
  get silentMs(): number {
    return this.#open.size === 0 ? 0 : this.#clock.monotonicMs() - this.#changedMs;
  }

  add(replayed: readonly ReplayedRow[]): void {
    if (this.#open.size === 0) this.#changedMs = this.#clock.monotonicMs();
    for (const row of replayed) this.#open.set(row.id, row);
    this.#tally = { ...this.#tally, replayed: this.#tally.replayed + replayed.length };
  }

  async poll(): Promise<void> {
    if (this.#open.size === 0) return;
    const startedMs = this.#clock.monotonicMs();
    const all = [...this.#open.values()];
    const { rows } = await this.#admin.store.database.run<OutcomeRow>(this.#admin.sql.outcomes, [
      toArrayLiteral(all.map(({ id }) => id)),
      toArrayLiteral(all.map(({ table }) => table)),
      toArrayLiteral(all.map(({ lane }) => lane)),
      toArrayLiteral(all.map(({ seq }) => seq)),
    ]);
    for (const row of rows) this.#settle(row);
    this.#polledMs = this.#clock.monotonicMs();
    // Polls take at most a fifth of the time, so that they do not slow down the database.
    const pauseMs = (this.#polledMs - startedMs) * 4;
    this.#pollMs = Math.min(MAX_POLL_MS, Math.max(MIN_POLL_MS, pauseMs));
  }

  #settle(row: OutcomeRow): void {
    const replayed = this.#open.get(row.id);
    if (replayed === undefined) return;
    const outcome = judgeOutcome(replayed, row);
    if (outcome.kind === "waiting") return;
    this.#changedMs = this.#clock.monotonicMs();
    if (outcome.kind === "failing") {
      this.#failing.add(row.id);
      this.#tally = { ...this.#tally, error: outcome.error };
      return;
    }
    this.#open.delete(row.id);
    this.#failing.delete(row.id);
    const { handled, diedSame, diedOtherwise } = this.#tally;
    if (outcome.kind === "handled") this.#tally = { ...this.#tally, handled: handled + 1 };
    else if (outcome.same) this.#tally = { ...this.#tally, diedSame: diedSame + 1, error: outcome.error };
    else this.#tally = { ...this.#tally, diedOtherwise: diedOtherwise + 1, error: outcome.error };
  }
}

/** State of a replayed message in the database. */
export interface OutcomeRow {
  readonly id: string;
  readonly waiting: boolean;
  readonly attempts: number;
  readonly last_error: string | null;
  readonly letter: string | null;
  readonly fingerprint: string | null;
  readonly consumer: string | null;
  readonly type: string | null;
  readonly reason: Parameters<typeof computeFingerprint>[0]["reason"] | null;
  readonly error_type: string | null;
  readonly error_message: string | null;
}

/** `failing`: an attempt failed like before and will be retried. `died`: the message was dead-lettered again. */
export type Outcome =
  | { readonly kind: "waiting" }
  | { readonly kind: "handled" }
  | { readonly kind: "failing"; readonly error: string }
  | { readonly kind: "died"; readonly letter: string; readonly same: boolean; readonly error: string };

/** Compares the state of a replayed message with its earlier failure. Pure. */
export function judgeOutcome(replayed: ReplayedRow, row: OutcomeRow): Outcome {
  if (row.letter !== null) {
    const errors = { errorType: row.error_type ?? "", errorMessage: row.error_message ?? "" };
    const { consumer, type, reason } = row;
    const now =
      row.fingerprint ??
      computeFingerprint({ consumer, type: type ?? "", reason: reason ?? "rejected", ...errors });
    const error = `${errors.errorType}: ${errors.errorMessage}`;
    return { kind: "died", letter: row.letter, same: now === replayed.fingerprint, error };
  }
  if (!row.waiting) return { kind: "handled" };
  const isFailing = row.attempts > 0 && row.last_error !== null && isSameFailure(replayed, row.last_error);
  return isFailing ? { kind: "failing", error: row.last_error ?? "" } : { kind: "waiting" };
}

/** Outcomes of the replayed messages of a group so far. */
export interface Tally {
  readonly replayed: number;
  readonly handled: number;
  /** Dead-lettered again with the same cause, and with another cause. */
  readonly diedSame: number;
  readonly diedOtherwise: number;
  /** In retry after the same failure. */
  readonly failing: number;
  /** Error of the last failure. */
  readonly error: string | null;
}

/** Up to this number or share, failures with other causes do not stop the replay. */
const MAX_OTHER_DEATHS = 3;
const MAX_OTHER_SHARE = 0.05;

/** Returns why a group must stop, or undefined. One repeated failure is enough; in the canary stage any failure is. */
export function reasonToStop(stage: Stage["name"], tally: Tally): string | undefined {
  const { handled, diedSame, diedOtherwise, failing, error } = tally;
  const how = error === null ? "" : `: ${error}`;
  if (diedSame + failing > 0) return `the same failure came back${how}`;
  if (stage === "canary" && diedOtherwise > 0) return `the canary failed with another error${how}`;
  const max = Math.max(MAX_OTHER_DEATHS, (handled + diedOtherwise) * MAX_OTHER_SHARE);
  return diedOtherwise > max ? `${diedOtherwise} messages failed with another error${how}` : undefined;
}
