import type { By } from "../../audit/index.ts";
import { streamFor } from "../../message/index.ts";
import { type Clock, sleep, systemClock } from "../../runtime/index.ts";
import { type Param, toArrayLiteral } from "../../storage/index.ts";
import type { DeadLetterAdmin } from "./dead-letter-admin.ts";
import type { DeadLetterGroup } from "./groups.ts";
import { type InFlightReplay, judgeOutcome, type OutcomeRow, reasonToStop, type Tally } from "./outcome.ts";
import { type Candidate, replayDeadLetters } from "./replay-dead-letters.ts";
import type { ReplaySettings } from "./replay-options.ts";
import { chunkSize, maxInFlight, planStages, type Stage } from "./stages.ts";
import { findWorkers } from "./workers.ts";

/**
 * done: everything was replayed · stopped: a failure came back · not running: nobody would handle it ·
 * unknown yet: nothing came of what was replayed · interrupted: somebody asked to end it · incomplete: letters are left
 * whose turn did not come.
 */
export type ReplayVerdict = "done" | "incomplete" | "stopped" | "not running" | "unknown yet" | "interrupted";

/** Lets letters of all groups go at one pace. */
export class Pacer {
  readonly #clock: Clock;
  #nextMs = 0;

  constructor(clock: Clock = systemClock) {
    this.#clock = clock;
  }

  /** Waits for the turn of so many letters. False when it was ended before. */
  async waitTurn(letters: number, perSecond: number, signal: AbortSignal | undefined): Promise<boolean> {
    const nowMs = this.#clock.monotonicMs();
    const waitMs = Math.max(0, this.#nextMs - nowMs);
    this.#nextMs = Math.max(this.#nextMs, nowMs) + (letters / perSecond) * 1_000;
    return waitMs === 0 ? signal?.aborted !== true : sleep(waitMs, signal);
  }
}

export interface GroupResult {
  readonly verdict: ReplayVerdict;
  readonly why: string | null;
}

const MAX_SETTLE_MS = 2_000;

/** The replay of the letters of one cause: stage after stage, as long as the cause does not show itself. */
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
  end: GroupResult | undefined;

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
      this.#readPage([after.place, after.writtenAt, after.messageId, limit]),
    );
    this.#stages = [...planStages(settings)];
  }

  get tally(): Tally {
    return this.#inFlight.tally;
  }

  /** Replayed, and nobody knows yet what came of it. */
  get waiting(): number {
    return this.#inFlight.size;
  }

  get stage(): Stage["name"] {
    return this.#stage;
  }

  /** Replays what may go now. Called again it goes on where it was: other groups may have made room for its keys. */
  async run(told: () => void): Promise<void> {
    const [working] = await findWorkers(this.#admin, [this.group.consumer]);
    if (working?.why !== undefined) return this.#finish("not running", working.why);
    for (let stage = this.#stages[0]; stage !== undefined; stage = this.#stages[0]) {
      this.#stage = stage.name;
      const more = await this.#runStage(stage, told);
      if (this.end !== undefined || !more) return;
      this.#stages.shift();
    }
  }

  /** True when the stage is full, false when there is nothing left for now. */
  async #runStage(stage: Stage, told: () => void): Promise<boolean> {
    let [sent, inPass] = [0, 0];
    while (sent < stage.letters) {
      if (!(await this.#canContinue())) return false;
      const room = Math.min(chunkSize(stage), stage.letters - sent, maxInFlight(stage) - this.#inFlight.size);
      if (room <= 0) {
        await sleep(this.#inFlight.dueMs, this.#settings.signal);
        continue;
      }
      // Once the ramp has come through, a run of one key goes together: its line keeps the order.
      const page = await this.#queue.take(room, this.#inFlight.moving, stage.name === "rest");
      if (page.length > 0) {
        if (!(await this.#pacer.waitTurn(page.length, stage.perSecond, this.#settings.signal))) continue;
        const flown = await replayDeadLetters(this.#admin, page, this.#by);
        this.#inFlight.add(flown);
        sent += flown.length;
        inPass += flown.length;
        told();
      } else if (this.#queue.isOver(inPass)) {
        if (!(await this.#drain())) return false;
        this.#queue.restart();
        if (inPass === 0) return false;
        inPass = 0; // keys whose first letter was handled have a next one
      }
    }
    return this.#drain();
  }

  async #readPage(after: readonly Param[]): Promise<readonly Candidate[]> {
    const { names, params } = this.#settings.conditions;
    const { rows } = await this.#admin.store.database.run<Candidate>(this.#admin.sql.page(names), [
      this.group.fingerprint,
      this.#upTo,
      ...after,
      ...params,
    ]);
    return rows;
  }

  /** Waits until something has come of everything replayed so far. */
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
    } else if (this.#settings.signal?.aborted === true)
      this.#finish("interrupted", "somebody asked to end it");
    else if (this.#inFlight.silentMs > this.#settings.waitMs) await this.#giveUp();
    return this.end === undefined;
  }

  // What was sent together with the one that failed is told as well, unless that takes long.
  async #awaitRemaining(): Promise<void> {
    const untilMs = systemClock.monotonicMs() + Math.min(MAX_SETTLE_MS, this.#settings.waitMs);
    while (this.#inFlight.size > this.tally.failing && systemClock.monotonicMs() < untilMs) {
      if (!(await sleep(this.#inFlight.dueMs, this.#settings.signal))) return;
      await this.#inFlight.poll();
    }
  }

  async #giveUp(): Promise<void> {
    const [worker] = await findWorkers(this.#admin, [this.group.consumer]);
    const seconds = Math.round(this.#settings.waitMs / 1_000);
    const state = worker?.why ?? "it is running, so it may be slow, or busy with what came before";
    const what = `nothing has come of ${this.waiting} replayed letters for ${seconds} s`;
    if (worker?.why === undefined) this.#finish("unknown yet", `${what}; ${state}`);
    else this.#finish("not running", `${what}: ${state}`);
  }

  #finish(verdict: ReplayVerdict, why: string): void {
    this.end = { verdict, why };
  }
}

interface Cursor {
  readonly place: string;
  readonly writtenAt: string;
  readonly messageId: string;
}

/** Reads so many letters behind the cursor, in the order of their messages. */
export type ReadCandidates = (after: Cursor, limit: number) => Promise<readonly Candidate[]>;

const START: Cursor = { place: "-2", writtenAt: "-infinity", messageId: "" };
const WINDOW = 500;
/** How many letters may be passed over in vain while others are on their way that they may be waiting for. */
const MAX_PASSED_OVER = 2 * WINDOW;

/**
 * The letters of a cause in the order of their messages, pass after pass. A key of which one letter had to wait is left
 * alone for the rest of the pass, so none of its letters overtakes it.
 */
export class ReplayQueue {
  readonly #read: ReadCandidates;
  #cursor = START;
  #window: readonly Candidate[] = [];
  #at = 0;
  #ended = false;
  #passedOver = 0;
  readonly #skippedStreams = new Set<string>();

  constructor(read: ReadCandidates) {
    this.#read = read;
  }

  /** The next that may go, as far as one window reaches; none of a key in `moving`, and one of each unless `together`. */
  async take(limit: number, moving: ReadonlySet<string>, together: boolean): Promise<readonly Candidate[]> {
    if (this.#at >= this.#window.length) await this.#readWindow();
    const taken: Candidate[] = [];
    const keys = new Set<string>();
    for (; this.#at < this.#window.length && taken.length < limit; this.#at++) {
      const letter = this.#window[this.#at];
      if (letter === undefined) break;
      const stream = letter.key === null ? undefined : streamFor(letter.topic, letter.key);
      if (stream !== undefined) {
        const waits = letter.waits || moving.has(stream) || (!together && keys.has(stream));
        if (waits) this.#skippedStreams.add(stream);
        if (this.#skippedStreams.has(stream)) {
          this.#passedOver += 1;
          continue;
        }
        keys.add(stream);
      }
      taken.push(letter);
    }
    if (taken.length > 0) this.#passedOver = 0;
    return taken;
  }

  /** True when the rest of the pass is not worth reading before something has come of what was replayed in it. */
  isOver(replayedInPass: number): boolean {
    const seen = this.#at >= this.#window.length;
    return (this.#ended && seen) || (replayedInPass > 0 && this.#passedOver >= MAX_PASSED_OVER);
  }

  restart(): void {
    this.#cursor = START;
    this.#window = [];
    this.#at = 0;
    this.#ended = false;
    this.#passedOver = 0;
    this.#skippedStreams.clear();
  }

  async #readWindow(): Promise<void> {
    this.#window = this.#ended ? [] : await this.#read(this.#cursor, WINDOW);
    this.#at = 0;
    this.#ended = this.#window.length < WINDOW;
    const last = this.#window.at(-1);
    if (last !== undefined)
      this.#cursor = { place: last.place, writtenAt: last.written_at, messageId: last.message_id };
  }
}

const MIN_POLL_MS = 25;
const MAX_POLL_MS = 500;

/** Replayed letters of one group until it is known what came of them. */
class InFlightReplays {
  readonly #admin: DeadLetterAdmin;
  readonly #clock: Clock;
  readonly #open = new Map<string, InFlightReplay>();
  readonly #failing = new Set<string>();
  #tally: Tally = { replayed: 0, handled: 0, diedSame: 0, diedOtherwise: 0, failing: 0, error: null };
  #lookedMs = 0;
  #changedMs = 0;
  #pollMs = MIN_POLL_MS;

  constructor(admin: DeadLetterAdmin, clock: Clock = systemClock) {
    this.#admin = admin;
    this.#clock = clock;
  }

  get size(): number {
    return this.#open.size;
  }

  /** The streams that have one on its way. */
  get moving(): ReadonlySet<string> {
    return new Set([...this.#open.values()].flatMap(({ stream }) => (stream === null ? [] : [stream])));
  }

  get tally(): Tally {
    return { ...this.#tally, failing: this.#failing.size };
  }

  /** Milliseconds until it is worth looking again. */
  get dueMs(): number {
    return Math.max(0, this.#lookedMs + this.#pollMs - this.#clock.monotonicMs());
  }

  /** How long nothing has come of any of them. */
  get silentMs(): number {
    return this.#open.size === 0 ? 0 : this.#clock.monotonicMs() - this.#changedMs;
  }

  add(flights: readonly InFlightReplay[]): void {
    if (this.#open.size === 0) this.#changedMs = this.#clock.monotonicMs();
    for (const flight of flights) this.#open.set(flight.id, flight);
    this.#tally = { ...this.#tally, replayed: this.#tally.replayed + flights.length };
  }

  async poll(): Promise<void> {
    if (this.#open.size === 0) return;
    const beganMs = this.#clock.monotonicMs();
    const all = [...this.#open.values()];
    const { rows } = await this.#admin.store.database.run<OutcomeRow>(this.#admin.sql.outcomes, [
      toArrayLiteral(all.map(({ id }) => id)),
      toArrayLiteral(all.map(({ line }) => line)),
      toArrayLiteral(all.map(({ lane }) => lane)),
      toArrayLiteral(all.map(({ seq }) => seq)),
    ]);
    for (const row of rows) this.#settle(row);
    this.#lookedMs = this.#clock.monotonicMs();
    // Looking must not cost the database more than the work that is looked at.
    const took = (this.#lookedMs - beganMs) * 4;
    this.#pollMs = Math.min(MAX_POLL_MS, Math.max(MIN_POLL_MS, took));
  }

  #settle(row: OutcomeRow): void {
    const flight = this.#open.get(row.id);
    if (flight === undefined) return;
    const outcome = judgeOutcome(flight, row);
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
