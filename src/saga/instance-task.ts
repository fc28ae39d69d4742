import { isSagaboxError } from "../errors/index.ts";
import { after, sleep, withDeadline } from "../runtime/index.ts";
import { messageOf } from "./begin.ts";
import type { Decision } from "./decision.ts";
import type { WorkOutcome } from "./input.ts";
import { InstanceGone, InstanceHandle, nameOf, type HandleParts } from "./instance-handle.ts";
import { doOutside } from "./local-step.ts";
import { hasEnded } from "./state.ts";
import type { LocalWork } from "./timers.ts";
import { tracedStep } from "./trace-saga.ts";
import { Wanted } from "./wanted.ts";

interface TaskParts extends HandleParts {
  /** Something may have been left for it. */
  readonly mail: boolean;
}

const FIRST_WAIT_MS = 20;
const LONGEST_WAIT_MS = 5_000;
const LATE_TRIES = 8;

/** One instance while this process has it: its mail, its clock and its local steps. */
export class InstanceTask {
  readonly #parts: TaskParts;
  readonly #handle: InstanceHandle;
  readonly #running = new Map<string, Wanted>();
  readonly #lost = new AbortController();
  #wake: (() => void) | undefined;
  #awake = false;
  #mail: boolean;
  #released = false;
  #stopping = false;
  #failures = 0;
  #run: Promise<void> | undefined;

  constructor(parts: TaskParts) {
    this.#parts = parts;
    this.#handle = new InstanceHandle(parts);
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

  /** Whether it has come to its end, so that time alone moves it no more. */
  get ended(): boolean {
    return hasEnded(this.#handle.instance.status);
  }

  /** Somebody else has it now. */
  lose(reason = new Error("another process has taken the saga over")): void {
    this.#stopping = true;
    this.#lost.abort(reason);
    for (const wanted of this.#running.values()) wanted.end(reason);
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
    while (!this.#lost.signal.aborted) {
      const goesOn = await this.#persist(() => this.#turn());
      if (goesOn === false) break;
    }
    if (this.#lost.signal.aborted || this.#released) return;
    await this.#handle.release().catch(() => undefined); // it runs out by itself
  }

  /** One round: mail and timers, then local work, then waiting for whatever comes next. False when there is nothing left. */
  async #turn(): Promise<boolean> {
    const handle = this.#handle;
    this.#awake = false;
    if (this.#released) return false;
    if (this.#mail || handle.clockHasWork()) {
      this.#mail = false;
      await handle.tick();
    }
    this.#abortUnwanted();
    const due = this.#stopping ? [] : handle.work();
    for (const work of due) {
      if (this.#running.has(nameOf(work))) continue;
      if (work.kind === "run") void this.#outside(work);
      else if (await handle.inside(work, (decision) => this.#isLast(decision, 0))) {
        this.#released = true;
        break;
      }
    }
    if (due.some(({ kind }) => kind === "tx")) return true;
    if (this.#running.size === 0 && (this.#stopping || !this.#dueSoon())) return false;
    await this.#nextThing();
    return true;
  }

  #dueSoon(): boolean {
    const { dueMs, nowMs } = this.#handle;
    return this.#mail || (dueMs !== null && dueMs <= nowMs);
  }

  async #outside(work: LocalWork): Promise<void> {
    const wanted = new Wanted();
    const name = nameOf(work);
    this.#running.set(name, wanted);
    const tellLate = (outcome: WorkOutcome): void => void this.#tellLate(work, outcome);
    const { instance } = this.#handle;
    const { spans } = this.#parts.engine.parts;
    const outcome = await tracedStep(spans, work, instance, () =>
      doOutside(work, instance, wanted, tellLate),
    );
    await this.#settle(work, outcome);
    this.#running.delete(name);
    this.#goOn();
  }

  async #settle(work: LocalWork, outcome: WorkOutcome): Promise<void> {
    if (this.#lost.signal.aborted) return this.#tellLate(work, outcome);
    // What was cut off because the worker stops is not charged: whoever has the instance next does it again.
    if (this.#stopping && outcome.kind !== "done") return;
    const isLast = (decision: Decision): boolean => this.#isLast(decision, 1);
    const released = await this.#persist(() => this.#handle.settle(work, outcome, isLast));
    if (released === true) this.#released = true;
  }

  // Nobody may have the instance any more, or somebody else: whoever has it next finds this.
  async #tellLate(work: LocalWork, outcome: WorkOutcome): Promise<void> {
    if (outcome.kind !== "done") return;
    for (let tries = 1; tries <= LATE_TRIES; tries++) {
      try {
        return await this.#handle.post(work, outcome);
      } catch {
        await sleep(FIRST_WAIT_MS * 2 ** tries);
      }
    }
  }

  // If nothing is left to be done here afterwards, the claim is given back in the same statement.
  #isLast({ state }: Decision, running: number): boolean {
    if (this.#running.size > running || this.#mail) return false;
    return this.#stopping || this.#handle.work(state).length === 0;
  }

  #abortUnwanted(): void {
    const { records } = this.#handle.instance.state;
    for (const [name, wanted] of this.#running) {
      const [place = "", undo] = name.split(" ");
      const record = records[place];
      const status = undo === "undo" ? record?.undo?.status : record?.status;
      if (this.#stopping) wanted.end(new Error("the worker stops"));
      else if (status !== "in_progress" || (undo !== "undo" && record?.abandoned !== undefined)) {
        wanted.end(new Error(record?.abandoned ?? "the saga does not want it any more"));
      }
    }
  }

  async #nextThing(): Promise<void> {
    if (this.#awake || this.#mail || this.#lost.signal.aborted) return;
    const { dueMs, nowMs } = this.#handle;
    // What is being done is due all the time; it says when it is done.
    const others = dueMs === null || dueMs <= nowMs ? 1_000 : Math.min(1_000, dueMs - nowMs);
    // Nobody else looks while the instance is claimed, so that we do now and then.
    await new Promise<void>((resolve) => {
      const cancel = after(others, () => {
        this.#mail = true;
        resolve();
      });
      this.#wake = () => {
        cancel();
        resolve();
      };
    });
    this.#wake = undefined;
  }

  /** Tries again for as long as the database fails; undefined when the instance was lost meanwhile. */
  async #persist<T>(action: () => Promise<T>): Promise<T | undefined> {
    const { type, id, traceparent } = this.#handle.instance;
    while (!this.#lost.signal.aborted) {
      try {
        const result = await action();
        this.#failures = 0;
        return result;
      } catch (error) {
        if (error instanceof InstanceGone) {
          await this.#handle.release().catch(() => undefined); // whoever looks at it next sees why
          this.lose(error);
          return undefined;
        }
        const retryInMs = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(this.#failures++, 10));
        if (!isSagaboxError(error, "SAGA_CONFLICT")) {
          const text = messageOf(error).slice(0, 500);
          const context = { sagaId: id, traceparent };
          this.#parts.engine.parts.observer.tell(
            "saga.failed",
            { type, id, error: text, retryInMs },
            context,
          );
        }
        await sleep(retryInMs, this.#lost.signal);
        if (this.#stopping && this.#failures > 3) this.#lost.abort(new Error("stopped"));
      }
    }
    return undefined;
  }
}
