import type { By } from "../../audit/index.ts";
import { sleep, systemClock, type Clock } from "../../runtime/index.ts";
import type { Param } from "../../storage/index.ts";
import { InFlightReplays } from "./in-flight-replays.ts";
import type { DeadLetterGroup } from "./groups.ts";
import type { DeadLetterAdmin } from "./dead-letter-admin.ts";
import { ReplayQueue } from "./replay-queue.ts";
import { reasonToStop, type Tally } from "./outcome.ts";
import { replayDeadLetters, type Candidate } from "./replay-dead-letters.ts";
import type { ReplaySettings } from "./replay-options.ts";
import { chunkSize, planStages, maxInFlight, type Stage } from "./stages.ts";
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
