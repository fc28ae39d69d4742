import type { By } from "../../audit/index.ts";
import { sleep, systemClock, type Clock } from "../../runtime/index.ts";
import type { Param } from "../../storage/index.ts";
import { Flights } from "./flights.ts";
import type { LetterGroup } from "./groups.ts";
import type { LetterAdmin } from "./letter-admin.ts";
import { LetterLine } from "./letter-line.ts";
import { reasonToStop, type Tally } from "./outcome.ts";
import { replayLetters, type Candidate } from "./replay-letters.ts";
import type { ReplaySettings } from "./replay-options.ts";
import { chunkOf, stagesOf, windowOf, type Stage } from "./stages.ts";
import { workersOf } from "./workers.ts";

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
  async turn(letters: number, perSecond: number, signal: AbortSignal | undefined): Promise<boolean> {
    const nowMs = this.#clock.monotonicMs();
    const waitMs = Math.max(0, this.#nextMs - nowMs);
    this.#nextMs = Math.max(this.#nextMs, nowMs) + (letters / perSecond) * 1_000;
    return waitMs === 0 ? signal?.aborted !== true : sleep(waitMs, signal);
  }
}

export interface GroupEnd {
  readonly verdict: ReplayVerdict;
  readonly why: string | null;
}

const SETTLE_MS = 2_000;

/** The replay of the letters of one cause: stage after stage, as long as the cause does not show itself. */
export class GroupReplay {
  readonly group: LetterGroup;
  readonly #admin: LetterAdmin;
  readonly #settings: ReplaySettings;
  readonly #upTo: string;
  readonly #pacer: Pacer;
  readonly #flights: Flights;
  readonly #line: LetterLine;
  readonly #stages: Stage[];
  readonly #by: By;
  #stage: Stage["name"] = "canary";
  end: GroupEnd | undefined;

  constructor(
    admin: LetterAdmin,
    settings: ReplaySettings,
    { group, upTo, pacer }: { readonly group: LetterGroup; readonly upTo: string; readonly pacer: Pacer },
  ) {
    this.group = group;
    this.#admin = admin;
    this.#settings = settings;
    this.#upTo = upTo;
    this.#by = { actor: settings.actor, reason: settings.reason };
    this.#pacer = pacer;
    this.#flights = new Flights(admin);
    this.#line = new LetterLine((after, limit) =>
      this.#read([after.place, after.writtenAt, after.messageId, limit]),
    );
    this.#stages = [...stagesOf(settings)];
  }

  get tally(): Tally {
    return this.#flights.tally;
  }

  /** Replayed, and nobody knows yet what came of it. */
  get waiting(): number {
    return this.#flights.size;
  }

  get stage(): Stage["name"] {
    return this.#stage;
  }

  /** Replays what may go now. Called again it goes on where it was: other groups may have made room for its keys. */
  async play(told: () => void): Promise<void> {
    const [working] = await workersOf(this.#admin, [this.group.consumer]);
    if (working?.why !== undefined) return this.#ended("not running", working.why);
    for (let stage = this.#stages[0]; stage !== undefined; stage = this.#stages[0]) {
      this.#stage = stage.name;
      const more = await this.#play(stage, told);
      if (this.end !== undefined || !more) return;
      this.#stages.shift();
    }
  }

  /** True when the stage is full, false when there is nothing left for now. */
  async #play(stage: Stage, told: () => void): Promise<boolean> {
    let [sent, inPass] = [0, 0];
    while (sent < stage.letters) {
      if (!(await this.#goOn())) return false;
      const room = Math.min(chunkOf(stage), stage.letters - sent, windowOf(stage) - this.#flights.size);
      if (room <= 0) {
        await sleep(this.#flights.dueMs, this.#settings.signal);
        continue;
      }
      // Once the ramp has come through, a run of one key goes together: its line keeps the order.
      const page = await this.#line.take(room, this.#flights.moving, stage.name === "rest");
      if (page.length > 0) {
        if (!(await this.#pacer.turn(page.length, stage.perSecond, this.#settings.signal))) continue;
        const flown = await replayLetters(this.#admin, page, this.#by);
        this.#flights.add(flown);
        sent += flown.length;
        inPass += flown.length;
        told();
      } else if (this.#line.isOver(inPass)) {
        if (!(await this.#drained())) return false;
        this.#line.restart();
        if (inPass === 0) return false;
        inPass = 0; // keys whose first letter was handled have a next one
      }
    }
    return this.#drained();
  }

  async #read(after: readonly Param[]): Promise<readonly Candidate[]> {
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
  async #drained(): Promise<boolean> {
    while (this.#flights.size > 0) {
      if (!(await this.#goOn())) return false;
      if (this.#flights.size > 0) await sleep(this.#flights.dueMs, this.#settings.signal);
    }
    return this.#goOn();
  }

  async #goOn(): Promise<boolean> {
    if (this.#flights.dueMs === 0) await this.#flights.look();
    const why = reasonToStop(this.#stage, this.tally);
    if (why !== undefined) {
      this.#ended("stopped", why);
      await this.#settleDown();
    } else if (this.#settings.signal?.aborted === true)
      this.#ended("interrupted", "somebody asked to end it");
    else if (this.#flights.silentMs > this.#settings.waitMs) await this.#givenUp();
    return this.end === undefined;
  }

  // What was sent together with the one that failed is told as well, unless that takes long.
  async #settleDown(): Promise<void> {
    const untilMs = systemClock.monotonicMs() + Math.min(SETTLE_MS, this.#settings.waitMs);
    while (this.#flights.size > this.tally.failing && systemClock.monotonicMs() < untilMs) {
      if (!(await sleep(this.#flights.dueMs, this.#settings.signal))) return;
      await this.#flights.look();
    }
  }

  async #givenUp(): Promise<void> {
    const [worker] = await workersOf(this.#admin, [this.group.consumer]);
    const seconds = Math.round(this.#settings.waitMs / 1_000);
    const state = worker?.why ?? "it is running, so it may be slow, or busy with what came before";
    const what = `nothing has come of ${this.waiting} replayed letters for ${seconds} s`;
    if (worker?.why === undefined) this.#ended("unknown yet", `${what}; ${state}`);
    else this.#ended("not running", `${what}: ${state}`);
  }

  #ended(verdict: ReplayVerdict, why: string): void {
    this.end = { verdict, why };
  }
}
