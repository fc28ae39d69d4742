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
import { listStepsInProgress, nameInstance } from "./describe-change.ts";
import type { WorkOutcome } from "./input.ts";
import { InstanceGone, InstanceHandle, workName, type HandleParts } from "./instance-handle.ts";
import { abandonedOutcome, Cancellation, runLocalStep } from "./local-step.ts";
import { Permit, type Semaphore } from "./semaphore.ts";
import { hasEnded } from "./state.ts";
import {
  abortReason,
  actionAfterRound,
  actionWithoutPermit,
  canRelease,
  canYieldPermit,
  type ClaimEvent,
  claimMoves,
  type ClaimState,
  isStopping,
  mayStartWork,
  type NextAction,
  outcomeAction,
  raiseSignal,
  type RoundState,
  type Signal,
  skipRound,
  type TaskState,
} from "./task-state.ts";
import type { LocalWork } from "./timers.ts";
import { traceStep } from "./trace-saga.ts";

interface TaskParts extends HandleParts {
  readonly semaphore: Semaphore;
  readonly mayHaveInput: boolean;
}

interface RunningWork {
  readonly work: LocalWork;
  readonly cancellation: Cancellation;
  /** Whether its outcome is being saved. */
  isSaving: boolean;
}

const BACKOFF = { firstMs: 20, maxMs: 5_000 };
const MAX_LATE_REPORTS = 8;
const LOOK_EVERY_MS = 1_000;
/** A stopping task gives its claim up after this many failed writes in a row. */
const MAX_FAILURES_WHILE_STOPPING = 3;

/**
 * Runs one claimed instance in this worker, in rounds: applies pending input and timers, then starts local steps. What
 * it may do is decided in task-state.ts; this class carries it out.
 */
export class InstanceTask {
  readonly #parts: TaskParts;
  readonly #handle: InstanceHandle;
  readonly #firstVersion: number;
  readonly #running = new Map<string, RunningWork>();
  readonly #permit: Permit;
  /** Ends pauses between retries when the claim is lost. */
  readonly #lost = new Cancellation();
  #claim: ClaimState = "active";
  #round: RoundState = "resting";
  #signal: Signal;
  #wake: (() => void) | undefined;
  #cancelLook: CancelTimer | undefined;
  #lookAtMs = Infinity;
  #failures = 0;
  #run: Promise<void> | undefined;

  constructor(parts: TaskParts) {
    this.#parts = parts;
    this.#permit = new Permit(parts.semaphore, () => this.#wake?.());
    this.#handle = new InstanceHandle(parts);
    this.#firstVersion = parts.instance.version;
    this.#signal = parts.mayHaveInput ? "input" : "none";
  }

  /** Resolves when the task has ended and its claim was released or lost. */
  run(): Promise<void> {
    this.#run ??= this.#work();
    return this.#run;
  }

  /** Signals that input may have arrived, or that an operator has changed the instance. */
  poke(): void {
    this.#raise("input");
  }

  /** Whether input was signalled that this task has not read. */
  get poked(): boolean {
    return this.#signal === "input";
  }

  /** How many transitions this task, or others meanwhile, have committed. */
  get transitions(): number {
    return this.#handle.instance.version - this.#firstVersion;
  }

  /** Whether the instance has ended, so that no timer moves it any more. */
  get ended(): boolean {
    return hasEnded(this.#handle.instance.status);
  }

  /** Ends the task, and aborts its running steps, because another worker has the instance. */
  lose(reason = new Error("another process has taken the saga over")): void {
    this.#loseClaim(reason);
    for (const { cancellation } of this.#running.values()) cancellation.cancel(reason);
    this.#wake?.();
  }

  /** Starts nothing more, aborts the signals of running steps, and resolves when these have ended. */
  async stop(): Promise<void> {
    this.#apply("stop");
    this.#raise("wake_up");
    await this.#run;
  }

  get #state(): TaskState {
    let saving = 0;
    for (const { isSaving } of this.#running.values()) if (isSaving) saving += 1;
    return {
      claim: this.#claim,
      round: this.#round,
      signal: this.#signal,
      running: this.#running.size,
      saving,
    };
  }

  #apply(event: ClaimEvent): void {
    this.#claim = claimMoves[this.#claim][event];
  }

  #loseClaim(reason: Error): void {
    this.#apply("lost");
    this.#lost.cancel(reason);
  }

  #raise(signal: Exclude<Signal, "none">): void {
    this.#signal = raiseSignal(this.#signal, signal);
    this.#wake?.();
  }

  async #work(): Promise<void> {
    while (this.#claim !== "lost") {
      this.#round = "planning";
      const next =
        this.#acquirePermit() ?? this.#runShortRound() ?? (await this.#persist(() => this.#runRound()));
      this.#round = "resting";
      this.#yieldPermit();
      if (next === "over") break;
      await this.#waitFor(next);
    }
    this.#cancelLook?.();
    // If this fails, the claim expires.
    if (this.#claim !== "lost" && this.#claim !== "released")
      await this.#handle.release().catch(() => undefined);
    this.#permit.release();
  }

  /** Undefined if the task has a permit or needs none. */
  #acquirePermit(): NextAction | undefined {
    if (!mayStartWork(this.#claim) || this.#permit.acquire()) return undefined;
    return actionWithoutPermit(this.#running.size, this.#permit.dismissed);
  }

  #yieldPermit(): void {
    if (this.#permit.taken && canYieldPermit(this.#state)) this.#permit.release();
  }

  /** A round without the database. Undefined if the database is needed, or if the round fails: the full round reports that. */
  #runShortRound(): NextAction | undefined {
    const skipped = this.#beginRound();
    if (skipped !== undefined) return skipped;
    try {
      if (this.#signal === "input" || this.#handle.isClockDue()) return undefined;
      const due = this.#dueWork();
      if (due.some(({ kind }) => kind === "tx")) return undefined;
      this.#abortUnneeded();
      for (const work of due) this.#startWork(work);
      return this.#afterRound();
    } catch {
      return undefined;
    }
  }

  async #runRound(): Promise<NextAction> {
    const skipped = this.#beginRound();
    if (skipped !== undefined) return skipped;
    if (this.#signal === "input" || this.#handle.isClockDue()) {
      this.#signal = "none";
      this.#round = "applying_input";
      await this.#handle.tick().finally(() => (this.#round = "planning"));
    }
    this.#abortUnneeded();
    const due = this.#dueWork();
    for (const work of due) {
      if (work.kind === "run") this.#startWork(work);
      else if (await this.#runTxWork(work)) return "over";
    }
    return due.some(({ kind }) => kind === "tx") ? "again" : this.#afterRound();
  }

  #beginRound(): NextAction | undefined {
    if (this.#signal === "wake_up") this.#signal = "none";
    return skipRound(this.#claim);
  }

  #afterRound(): NextAction {
    const { dueMs, nowMs } = this.#handle;
    return actionAfterRound(this.#state, dueMs !== null && dueMs <= nowMs);
  }

  #dueWork(): readonly LocalWork[] {
    return isStopping(this.#claim) ? [] : this.#handle.dueWork();
  }

  async #runTxWork(work: LocalWork): Promise<boolean> {
    const isReleased = await this.#handle.runInTransaction(work, ({ state }) =>
      canRelease(this.#state, 0, () => this.#handle.dueWork(state).length > 0),
    );
    if (isReleased) this.#apply("released");
    return isReleased;
  }

  #startWork(work: LocalWork): void {
    const name = workName(work);
    if (this.#running.has(name)) return;
    const running = { work, cancellation: new Cancellation(), isSaving: false };
    this.#running.set(name, running);
    void this.#runWork(name, running);
  }

  async #runWork(name: string, running: RunningWork): Promise<void> {
    const { work, cancellation } = running;
    const { instance } = this.#handle;
    const { spans } = this.#parts.engine.parts;
    const onLate = (outcome: WorkOutcome): void => void this.#reportLate(work, outcome);
    const ending =
      abandonedOutcome(work) ??
      traceStep(spans, work, instance, () => runLocalStep(work, instance, cancellation, onLate));
    const outcome = ending instanceof Promise ? await ending : ending;
    const action = outcomeAction(this.#claim, outcome.kind === "done");
    if (action === "report late") await this.#reportLate(work, outcome);
    if (action === "save") await this.#saveOutcome(running, outcome);
    this.#running.delete(name);
    this.#raise("wake_up");
  }

  async #saveOutcome(running: RunningWork, outcome: WorkOutcome): Promise<void> {
    const isReleased = await this.#persist(() =>
      this.#handle.settle(running.work, outcome, ({ state }) => {
        running.isSaving = true;
        this.#yieldPermit();
        const isLast = canRelease(this.#state, 1, () => this.#handle.dueWork(state).length > 0);
        this.#apply(isLast ? "release" : "kept");
        return isLast;
      }),
    );
    running.isSaving = false;
    this.#apply(isReleased === true ? "released" : "kept");
  }

  // The claim may be lost, so the outcome is left as pending input for the next worker.
  async #reportLate(work: LocalWork, outcome: WorkOutcome): Promise<void> {
    if (outcome.kind !== "done") return;
    await retryWithBackoff(() => this.#handle.reportLate(work, outcome), {
      backoff: BACKOFF,
      maxTries: MAX_LATE_REPORTS,
    });
  }

  #abortUnneeded(): void {
    const { records } = this.#handle.instance.state;
    for (const { work, cancellation } of this.#running.values()) {
      const reason = abortReason(this.#claim, records[work.stepPath], work.undo);
      if (reason !== undefined) cancellation.cancel(new Error(reason));
    }
  }

  #waitFor(next: NextAction | undefined): Promise<void> | undefined {
    if (next === "wait" && this.#signal === "none" && this.#claim !== "lost") {
      this.#scheduleLook();
      return this.#waitForWake();
    }
    const isReleasing = next === "releasing" && skipRound(this.#claim) === "releasing";
    return next === "queued" || isReleasing ? this.#waitForWake() : undefined;
  }

  #waitForWake(): Promise<void> {
    return new Promise((resolve) => (this.#wake = resolve));
  }

  // No other worker looks for input of a claimed instance, so this task does at intervals. Work in flight is due all the
  // time; its end wakes the task.
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

  /** Retries until the database accepts the write. Undefined if the claim was lost meanwhile. */
  async #persist<T>(write: () => Promise<T>): Promise<T | undefined> {
    while (this.#claim !== "lost") {
      try {
        const result = await write();
        this.#failures = 0;
        return result;
      } catch (error) {
        await this.#handleFailure(error);
      }
    }
    return undefined;
  }

  async #handleFailure(error: unknown): Promise<void> {
    if (error instanceof InstanceGone) {
      await this.#handle.release().catch(() => undefined); // the next worker that looks at the instance finds out why
      return this.lose(error);
    }
    const retryInMs = Math.round(backoffMs(BACKOFF, ++this.#failures));
    if (!isSagaboxError(error, "SAGA_CONFLICT")) {
      const { instance } = this.#handle;
      const { id, traceparent, state } = instance;
      const failure = {
        ...nameInstance(instance),
        step: listStepsInProgress(state),
        error: storableErrorText(error).slice(0, 500),
        retryInMs,
      };
      this.#parts.engine.parts.observer.emit("saga.failed", failure, { sagaId: id, traceparent });
    }
    await sleep(retryInMs, this.#lost.signal);
    if (isStopping(this.#claim) && this.#failures > MAX_FAILURES_WHILE_STOPPING)
      this.#loseClaim(new Error("stopped"));
  }
}
