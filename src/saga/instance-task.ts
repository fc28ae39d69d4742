import { isSagaboxError } from "../errors/index.ts";
import {
  after,
  backoffMs,
  retryWithBackoff,
  sleep,
  systemClock,
  type CancelTimer,
} from "../runtime/index.ts";
import { storableErrorText } from "./begin.ts";
import type { Decision } from "./decision.ts";
import type { WorkOutcome } from "./input.ts";
import { InstanceGone, InstanceHandle, workName, type HandleParts } from "./instance-handle.ts";
import { runLocalStep, abandonedOutcome } from "./local-step.ts";
import { Permit, type Semaphore } from "./semaphore.ts";
import { hasEnded } from "./state.ts";
import type { LocalWork } from "./timers.ts";
import { traceStep } from "./trace-saga.ts";
import { Cancellation } from "./cancellation.ts";

interface TaskParts extends HandleParts {
  readonly places: Semaphore;
  /** Something may have been left for it. */
  readonly mail: boolean;
}

const BACKOFF = { firstMs: 20, maxMs: 5_000 };
const LATE_TRIES = 8;
const LOOK_EVERY_MS = 1_000;

/**
 * What a round leaves: something to do at once or as soon as there is a place for it, something to wait for, or nothing.
 * While the claim is being given back, whatever comes up is for whoever has it next.
 */
type Next = "again" | "wait" | "queued" | "settling" | "over";

/** One instance while this process has it: its mail, its clock and its local steps. */
export class InstanceTask {
  readonly #parts: TaskParts;
  readonly #handle: InstanceHandle;
  readonly #running = new Map<string, Cancellation>();
  /** Those of them that have ended and are being written. */
  readonly #saving = new Set<string>();
  readonly #lost = new Cancellation();
  readonly #permit: Permit;
  #wake: (() => void) | undefined;
  #cancelLook: CancelTimer | undefined;
  #lookAtMs = Infinity;
  #awake = false;
  #hasPendingInput: boolean;
  #ticking = false;
  /** What is due is being begun. */
  #turning = false;
  /** The claim is given back with what is being written. */
  #releasing = false;
  #released = false;
  #stopping = false;
  #failures = 0;
  #run: Promise<void> | undefined;

  constructor(parts: TaskParts) {
    this.#parts = parts;
    this.#permit = new Permit(parts.places, () => this.#wake?.());
    this.#handle = new InstanceHandle(parts);
    this.#hasPendingInput = parts.mail;
  }

  run(): Promise<void> {
    this.#run ??= this.#work();
    return this.#run;
  }

  /** Something came for it, or it was moved by somebody else. */
  poke(): void {
    this.#hasPendingInput = true;
    this.#wakeUp();
  }

  /** Whether something came that nobody has looked at. */
  get poked(): boolean {
    return this.#hasPendingInput;
  }

  /** Whether it has come to its end, so that time alone moves it no more. */
  get ended(): boolean {
    return hasEnded(this.#handle.instance.status);
  }

  /** Somebody else has it now. */
  lose(reason = new Error("another process has taken the saga over")): void {
    this.#stopping = true;
    this.#lost.cancel(reason);
    for (const wanted of this.#running.values()) wanted.cancel(reason);
    this.#wake?.();
  }

  /** Begins nothing more and lets local steps finish; they are told that they should. */
  async stop(): Promise<void> {
    this.#stopping = true;
    this.#wakeUp();
    await this.#run;
  }

  #wakeUp(): void {
    this.#awake = true;
    this.#wake?.();
  }

  async #work(): Promise<void> {
    while (!this.#lost.ended) {
      this.#turning = true;
      const next = this.#acquirePermit() ?? this.#shortTurn() ?? (await this.#persist(() => this.#turn()));
      this.#turning = false;
      this.#releasePermitWhileWriting();
      if (next === "over") break;
      if (next === "wait") await this.#waitForNext();
      if (next === "queued" || (next === "settling" && this.#releasing)) await this.#waitForWake();
    }
    this.#cancelLook?.();
    if (!this.#lost.ended && !this.#released) await this.#handle.release().catch(() => undefined); // it runs out by itself
    this.#permit.release();
  }

  /** Undefined when there is a place for it, or when it needs none. Others may have time for what waits for too long. */
  #acquirePermit(): Next | undefined {
    if (this.#released || this.#releasing || this.#stopping || this.#permit.acquire()) return undefined;
    return this.#permit.dismissed && this.#running.size === 0 ? "over" : "queued";
  }

  // What was done is only to be written: its place is for others meanwhile, unless more is under way or being begun.
  #releasePermitWhileWriting(): void {
    if (this.#turning || !this.#permit.taken || this.#saving.size === 0) return;
    if (this.#saving.size === this.#running.size) this.#permit.release();
  }

  /** One round in which the database need not be asked. Undefined when it must; or when it fails, as the long one then does. */
  #shortTurn(): Next | undefined {
    this.#awake = false;
    if (this.#released) return "over";
    if (this.#releasing) return "settling";
    try {
      if (this.#hasPendingInput || this.#handle.isClockDue()) return undefined;
      const due = this.#dueWork();
      if (due.some(({ kind }) => kind === "tx")) return undefined;
      this.#abortUnwanted();
      for (const work of due) this.#startWork(work);
      return this.#nextAfterTurn();
    } catch {
      return undefined;
    }
  }

  /** One round: mail and timers, then local work. */
  async #turn(): Promise<Next> {
    const handle = this.#handle;
    this.#awake = false;
    if (this.#released) return "over";
    if (this.#releasing) return "settling";
    if (this.#hasPendingInput || handle.isClockDue()) {
      this.#hasPendingInput = false;
      this.#ticking = true;
      await handle.tick().finally(() => (this.#ticking = false));
    }
    this.#abortUnwanted();
    const due = this.#dueWork();
    for (const work of due) {
      if (work.kind === "run") this.#startWork(work);
      else if (await handle.runInTransaction(work, (decision) => this.#isLast(decision, 0))) {
        this.#released = true;
        return "over";
      }
    }
    return due.some(({ kind }) => kind === "tx") ? "again" : this.#nextAfterTurn();
  }

  #dueWork(): readonly LocalWork[] {
    return this.#stopping ? [] : this.#handle.dueWork();
  }

  /** What follows when everything that is due has been begun. */
  #nextAfterTurn(): Next {
    if (this.#running.size === 0 && (this.#stopping || !this.#isDueSoon())) return "over";
    return "wait";
  }

  #isDueSoon(): boolean {
    const { dueMs, nowMs } = this.#handle;
    return this.#hasPendingInput || (dueMs !== null && dueMs <= nowMs);
  }

  #startWork(work: LocalWork): void {
    const name = workName(work);
    if (!this.#running.has(name)) void this.#runWork(work, name);
  }

  async #runWork(work: LocalWork, name: string): Promise<void> {
    const wanted = new Cancellation();
    this.#running.set(name, wanted);
    const reportLate = (outcome: WorkOutcome): void => void this.#reportLate(work, outcome);
    const { instance } = this.#handle;
    const { spans } = this.#parts.engine.parts;
    const doing =
      abandonedOutcome(work) ??
      traceStep(spans, work, instance, () => runLocalStep(work, instance, wanted, reportLate));
    const outcome = doing instanceof Promise ? await doing : doing;
    if (this.#lost.ended) await this.#reportLate(work, outcome);
    // What was cut off because the worker stops is not charged: whoever has the instance next does it again.
    else if (!this.#stopping || outcome.kind === "done") {
      const isLast = (decision: Decision): boolean => {
        this.#saving.add(name);
        this.#releasePermitWhileWriting();
        return (this.#releasing = this.#isLast(decision, 1));
      };
      const released = await this.#persist(() => this.#handle.settle(work, outcome, isLast));
      this.#saving.delete(name);
      this.#releasing = false;
      if (released === true) this.#released = true;
    }
    this.#running.delete(name);
    this.#wakeUp();
  }

  // Nobody may have the instance any more, or somebody else: whoever has it next finds this.
  async #reportLate(work: LocalWork, outcome: WorkOutcome): Promise<void> {
    if (outcome.kind !== "done") return;
    await retryWithBackoff(() => this.#handle.reportLate(work, outcome), {
      backoff: BACKOFF,
      maxTries: LATE_TRIES,
    });
  }

  // If nothing is left to be done here afterwards, the claim is given back in the same statement.
  #isLast({ state }: Decision, running: number): boolean {
    if (this.#running.size > running || this.#hasPendingInput || this.#ticking) return false;
    return this.#stopping || this.#handle.dueWork(state).length === 0;
  }

  #abortUnwanted(): void {
    const { records } = this.#handle.instance.state;
    for (const [name, wanted] of this.#running) {
      const [place = "", undo] = name.split(" ");
      const record = records[place];
      const status = undo === "undo" ? record?.undo?.status : record?.status;
      if (this.#stopping) wanted.cancel(new Error("the worker stops"));
      else if (status !== "in_progress" || (undo !== "undo" && record?.abandoned !== undefined)) {
        wanted.cancel(new Error(record?.abandoned ?? "the saga does not want it any more"));
      }
    }
  }

  #waitForNext(): Promise<void> | undefined {
    if (this.#awake || this.#hasPendingInput || this.#lost.ended) return undefined;
    this.#scheduleLook();
    return this.#waitForWake();
  }

  #waitForWake(): Promise<void> {
    return new Promise((resolve) => (this.#wake = resolve));
  }

  // Nobody else looks while the instance is claimed, so that we do now and then. What is being done is due all the time;
  // it says when it is done.
  #scheduleLook(): void {
    const { dueMs, nowMs } = this.#handle;
    const waitMs = dueMs === null || dueMs <= nowMs ? LOOK_EVERY_MS : Math.min(LOOK_EVERY_MS, dueMs - nowMs);
    const atMs = systemClock.monotonicMs() + waitMs;
    if (this.#lookAtMs <= atMs) return;
    this.#cancelLook?.();
    this.#lookAtMs = atMs;
    this.#cancelLook = after(waitMs, () => {
      this.#lookAtMs = Infinity;
      this.poke();
    });
  }

  /** Tries again for as long as the database fails; undefined when the instance was lost meanwhile. */
  async #persist<T>(action: () => Promise<T>): Promise<T | undefined> {
    while (!this.#lost.ended) {
      try {
        const result = await action();
        this.#failures = 0;
        return result;
      } catch (error) {
        await this.#waitAfter(error);
      }
    }
    return undefined;
  }

  async #waitAfter(error: unknown): Promise<void> {
    if (error instanceof InstanceGone) {
      await this.#handle.release().catch(() => undefined); // whoever looks at it next sees why
      return this.lose(error);
    }
    const retryInMs = Math.round(backoffMs(BACKOFF, ++this.#failures));
    if (!isSagaboxError(error, "SAGA_CONFLICT")) {
      const { type, id, traceparent } = this.#handle.instance;
      const told = { type, id, error: storableErrorText(error).slice(0, 500), retryInMs };
      this.#parts.engine.parts.observer.emit("saga.failed", told, { sagaId: id, traceparent });
    }
    await sleep(retryInMs, this.#lost.signal);
    if (this.#stopping && this.#failures > 3) this.#lost.cancel(new Error("stopped"));
  }
}
