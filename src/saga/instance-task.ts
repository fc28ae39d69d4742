import { isSagaboxError } from "../errors/index.ts";
import { decodeJson } from "../message/index.ts";
import { classifyFailure } from "../retry/index.ts";
import { sleep, systemClock, withDeadline } from "../runtime/index.ts";
import { textArray, type Database, type Sql } from "../storage/index.ts";
import type { Decision } from "./decision.ts";
import type { SagaDefinition } from "./definition.ts";
import { messageOf } from "./begin.ts";
import type { SagaEngine, SagaTransaction } from "./engine.ts";
import type { SagaInput, WorkOutcome } from "./input.ts";
import { doInside, doOutside } from "./local-step.ts";
import { after, saveParams, saved, type Cause, type Loaded } from "./saga-store.ts";
import { hasEnded } from "./state.ts";
import { localWork, nextDueMs, type LocalWork } from "./timers.ts";

/** A transaction of ours: commits when the work resolves, rolls back when it throws. */
export type OpenTransaction = <T>(work: (tx: SagaTransaction & Sql) => Promise<T>) => Promise<T>;

interface TaskParts {
  readonly engine: SagaEngine;
  readonly database: Database;
  readonly begin: OpenTransaction;
  readonly worker: string;
  readonly definition: SagaDefinition;
  readonly instance: Loaded;
  /** Something may have been left for it. */
  readonly mail: boolean;
}

interface Mail {
  readonly id: string;
  readonly cause: string;
  readonly input: string;
}

const FIRST_WAIT_MS = 20;
const LONGEST_WAIT_MS = 5_000;

/** One instance while this process has it: its mail, its clock and its local steps. */
export class InstanceTask {
  readonly #parts: TaskParts;
  readonly #running = new Map<string, AbortController>();
  readonly #ended = new AbortController();
  #instance: Loaded;
  /** When the instance was read, by our own steady clock: from there on the database's time is reckoned. */
  #readAtMs = systemClock.monotonicMs();
  #wake: (() => void) | undefined;
  #awake = false;
  #mail: boolean;
  #released = false;
  #stopping = false;
  #failures = 0;
  #run: Promise<void> | undefined;

  constructor(parts: TaskParts) {
    this.#parts = parts;
    this.#instance = parts.instance;
    this.#mail = parts.mail;
  }

  run(): Promise<void> {
    this.#run ??= this.#work();
    return this.#run;
  }

  /** Something came for it, or it was moved by somebody else. */
  poke(): void {
    this.#mail = true;
    this.#goOn();
  }

  /** Whether something came that nobody has looked at. */
  get poked(): boolean {
    return this.#mail;
  }

  /** Somebody else has it now. */
  lose(): void {
    this.#stopping = true;
    this.#ended.abort(new Error("another process has taken the saga over"));
    this.#wake?.();
  }

  /** Lets local steps finish; they are told that they should, and are not waited for longer than this. */
  async stop(deadlineMs: number): Promise<void> {
    this.#stopping = true;
    this.#goOn();
    await withDeadline(this.#run ?? Promise.resolve(), deadlineMs, () => this.lose());
  }

  #goOn(): void {
    this.#awake = true;
    this.#wake?.();
  }

  async #work(): Promise<void> {
    while (!this.#ended.signal.aborted) {
      const goesOn = await this.#persist(() => this.#turn());
      if (goesOn === false) break;
    }
    await this.#release();
  }

  /** One round: mail and timers, then local work, then waiting for whatever comes next. False when there is nothing left. */
  async #turn(): Promise<boolean> {
    this.#awake = false;
    if (this.#released) return false;
    if (this.#mail || this.#clockHasWork()) await this.#tick();
    this.#abortUnwanted();
    const due = this.#stopping ? [] : this.#due();
    for (const work of due) {
      if (this.#running.has(nameOf(work))) continue;
      if (work.kind === "run") this.#begin(work);
      else await this.#inside(work);
    }
    if (due.some(({ kind }) => kind === "tx")) return true;
    if (this.#running.size === 0 && (this.#stopping || !this.#dueSoon())) return false;
    await this.#nextThing();
    return true;
  }

  #due(): LocalWork[] {
    return localWork(this.#parts.definition, this.#instance.state, this.#nowMs());
  }

  #clockHasWork(): boolean {
    const { engine, definition } = this.#parts;
    const known = { ...this.#instance, nowMs: this.#nowMs() };
    return engine.decide(definition, known, this.#clock()).ignored === undefined;
  }

  #clock(): SagaInput {
    const { claims } = this.#instance;
    return claims > 1 ? { kind: "tick", claims } : { kind: "tick" };
  }

  #dueSoon(): boolean {
    const dueMs = nextDueMs(this.#instance.state, hasEnded(this.#instance.status));
    return this.#mail || (dueMs !== null && dueMs <= this.#nowMs());
  }

  // What is there to be heard first, then the clock.
  async #tick(): Promise<void> {
    const { engine, begin, definition } = this.#parts;
    const { id } = this.#instance;
    this.#mail = false;
    await begin(async (tx) => {
      const current = await engine.load(tx, id);
      if (current === undefined) throw new Error(`saga ${id} is gone`);
      let instance = current;
      const { rows } = await tx.run<Mail>(engine.sql.mail, [id]);
      for (const { cause, input } of rows) {
        const letter = { cause, input: decodeJson(input) as unknown as SagaInput };
        ({ instance } = await engine.apply(tx, definition, instance, letter));
      }
      if (rows.length > 0) await tx.run(engine.sql.forgetMail, [id, textArray(rows.map((row) => row.id))]);
      const tick = { cause: "clock", input: this.#clock() };
      ({ instance } = await engine.apply(tx, definition, instance, tick));
      this.#took(instance);
    });
  }

  #begin(work: LocalWork): void {
    const wanted = new AbortController();
    const name = nameOf(work);
    this.#running.set(name, wanted);
    const signal = AbortSignal.any([wanted.signal, this.#ended.signal]);
    const tellLate = (outcome: WorkOutcome): void => void this.#post(work, outcome);
    void doOutside(work, this.#instance, signal, tellLate).then(async (outcome) => {
      // What was cut off because the worker stops is not charged: whoever has the instance next does it again.
      const cutOff = this.#stopping && outcome.kind !== "done";
      if (!this.#ended.signal.aborted && !cutOff) await this.#persist(() => this.#settle(work, outcome));
      this.#running.delete(name);
      this.#goOn();
    });
  }

  // Nobody may have the instance any more, so that whoever has it next finds this.
  async #post({ place, undo, epoch, attempt }: LocalWork, outcome: WorkOutcome): Promise<void> {
    const { engine, database, worker } = this.#parts;
    const { id } = this.#instance;
    const input: SagaInput = { kind: "worked", place, undo, epoch, attempt, outcome };
    const letter = engine.parts.newId();
    await this.#persist(() => engine.post(database, id, letter, `worker:${worker}`, input));
  }

  async #settle({ place, undo, epoch, attempt }: LocalWork, outcome: WorkOutcome): Promise<void> {
    const input: SagaInput = { kind: "worked", place, undo, epoch, attempt, outcome };
    await this.#apply({ cause: `worker:${this.#parts.worker}`, input });
  }

  /** One statement where nothing else is to be written; the version tells whether what we know is still true. */
  async #apply(cause: Cause): Promise<void> {
    const { engine, database, definition, begin } = this.#parts;
    const known = { ...this.#instance, nowMs: this.#nowMs() };
    const decision = engine.decide(definition, known, cause.input);
    if (engine.isAlone(decision)) {
      const { maxStateBytes } = engine.parts;
      const release = this.#isLast(decision);
      const params = tolerated(() =>
        saveParams(definition, known, decision, cause, { release, maxStateBytes }),
      );
      if (params !== undefined && (await saved(database, engine.sql, params))) {
        this.#took(after(known, decision));
        this.#released = release;
        engine.tell(known, decision);
        return;
      }
    }
    await begin(async (tx) => {
      const current = await engine.load(tx, known.id);
      if (current === undefined) return;
      const { instance } = await engine.apply(tx, definition, current, cause);
      this.#took(instance);
    });
  }

  // If nothing is left to be done here afterwards, the claim is given back in the same statement.
  #isLast({ state }: Decision): boolean {
    if (this.#running.size > 1 || this.#mail) return false;
    return this.#stopping || localWork(this.#parts.definition, state, this.#nowMs()).length === 0;
  }

  // The step's own writes, its result and what follows from it are one transaction.
  async #inside(work: LocalWork): Promise<void> {
    const { engine, begin, definition, worker } = this.#parts;
    const { place, undo, epoch, attempt } = work;
    const ended = (outcome: WorkOutcome): Cause => ({
      cause: `worker:${worker}`,
      input: { kind: "worked", place, undo, epoch, attempt, outcome },
    });
    try {
      await begin(async (tx) => {
        const current = await engine.load(tx, this.#instance.id);
        if (current === undefined) return;
        const still = localWork(definition, current.state, current.nowMs).find(
          (one) => nameOf(one) === nameOf(work),
        );
        if (still === undefined) return this.#took(current);
        const outcome = await doInside(still, current, tx);
        const { instance } = await engine.apply(tx, definition, current, ended(outcome));
        this.#took(instance);
      });
    } catch (error) {
      if (isSagaboxError(error, "SAGA_CONFLICT") || classifyFailure(error) === "infrastructure") throw error;
      const permanent = classifyFailure(error) === "permanent";
      await this.#apply(ended({ kind: "failed", error: messageOf(error), certain: true, permanent }));
    }
  }

  #abortUnwanted(): void {
    const { records } = this.#instance.state;
    for (const [name, wanted] of this.#running) {
      const [place = "", undo] = name.split(" ");
      const record = records[place];
      const status = undo === "undo" ? record?.undo?.status : record?.status;
      if (status !== "in_progress" || (undo !== "undo" && record?.abandoned !== undefined)) {
        wanted.abort(new Error(record?.abandoned ?? "the saga does not want it any more"));
      }
    }
    if (this.#stopping)
      for (const wanted of this.#running.values()) wanted.abort(new Error("the worker stops"));
  }

  async #nextThing(): Promise<void> {
    if (this.#awake || this.#mail || this.#ended.signal.aborted) return;
    const dueMs = nextDueMs(this.#instance.state, hasEnded(this.#instance.status));
    // What is being done is due all the time; it says when it is done.
    const others = dueMs === null || dueMs <= this.#nowMs() ? 1_000 : Math.min(1_000, dueMs - this.#nowMs());
    const waiting = new AbortController();
    this.#wake = () => waiting.abort();
    await sleep(others, waiting.signal);
    this.#wake = undefined;
    if (!waiting.signal.aborted) this.#mail = true; // nobody else looks while the instance is claimed
  }

  async #release(): Promise<void> {
    if (this.#ended.signal.aborted || this.#released) return;
    const { engine, database, worker } = this.#parts;
    await database.run(engine.sql.release, [this.#instance.id, worker]).catch(() => undefined); // it runs out by itself
  }

  /** Tries again for as long as the database fails; undefined when the instance was lost meanwhile. */
  async #persist<T>(action: () => Promise<T>): Promise<T | undefined> {
    const { type, id } = this.#instance;
    while (!this.#ended.signal.aborted) {
      try {
        const result = await action();
        this.#failures = 0;
        return result;
      } catch (error) {
        const retryInMs = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(this.#failures++, 10));
        if (!isSagaboxError(error, "SAGA_CONFLICT")) {
          const text = messageOf(error).slice(0, 500);
          this.#parts.engine.parts.observer.tell("saga.failed", { type, id, error: text, retryInMs });
        }
        await sleep(retryInMs, this.#ended.signal);
        if (this.#stopping && this.#failures > 3) this.#ended.abort(new Error("stopped"));
      }
    }
    return undefined;
  }

  #took(instance: Loaded): void {
    this.#instance = instance;
    this.#readAtMs = systemClock.monotonicMs();
  }

  /** The database's clock, reckoned on from when it was last read. */
  #nowMs(): number {
    return this.#instance.nowMs + (systemClock.monotonicMs() - this.#readAtMs);
  }
}

function nameOf({ place, undo, epoch, attempt }: LocalWork): string {
  return `${place} ${undo ? "undo" : "do"} ${epoch}.${attempt}`;
}

// Too large a state is dealt with where a transaction is open.
function tolerated<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    if (isSagaboxError(error, "SAGA_STATE_TOO_LARGE")) return undefined;
    throw error;
  }
}
