import { isSagaboxError, SagaboxError } from "../errors/index.ts";
import { toFailure, MAX_FREE_CONFLICTS, type Failure } from "../retry/index.ts";
import { systemClock, withDeadline } from "../runtime/index.ts";
import { toArrayLiteral, type Database, type TransactionOptions } from "../storage/index.ts";
import { storableErrorText } from "./begin.ts";
import type { Decision } from "./decision.ts";
import type { SagaDefinition } from "./definition.ts";
import type { SagaEngine, SagaTransaction } from "./engine.ts";
import type { SagaInput, WorkOutcome } from "./input.ts";
import { decodePendingInput } from "./pending-input.ts";
import { localTimeoutMs, runTxStep, timeoutOutcome, type StepTools } from "./local-step.ts";
import { applyDecision, atTime, type Cause, type LoadedInstance } from "./saga-store.ts";
import { COLLECT } from "./start.ts";
import { hasEnded } from "./state.ts";
import { traceStep, traceTransition } from "./trace-saga.ts";
import { toJsonText, buildTransition } from "./transition.ts";
import type { TransitionWriter } from "./transition-writer.ts";
import { clockIsDue, listLocalWork, nextDueMs, type LocalWork } from "./timers.ts";

/** Runs work in a transaction of its own: commits when the work resolves, rolls back when it throws. */
export type OpenTransaction = <T>(
  work: (tx: SagaTransaction & StepTransaction) => Promise<T>,
  options?: Pick<TransactionOptions, "idleTimeoutMs"> & {
    /** True if a function of the user runs in it, in the transaction of the user's library if there is one. */
    readonly forUser?: boolean;
  },
) => Promise<T>;

interface StepTransaction {
  /** The transaction for the function of a `tx` step. It gives no access to COMMIT or to the connection. */
  forUser(): StepTools;
  /** Closes the connection. Later statements on it fail, and the transaction is rolled back. */
  destroy(): void;
}

export interface HandleParts {
  readonly engine: SagaEngine;
  readonly database: Database;
  readonly begin: OpenTransaction;
  readonly writer: TransitionWriter;
  readonly worker: string;
  readonly definition: SagaDefinition;
  readonly instance: LoadedInstance;
}

interface PendingInputRow {
  readonly id: string;
  readonly cause: string;
  readonly input: string;
}

/** The instance was deleted, or its data subject was erased. */
export class InstanceGone extends Error {}

/** The state of one claimed instance in this worker, and the operations that move it. Detects other writers by version. */
export class InstanceHandle {
  readonly #parts: HandleParts;
  /** How often in a row a `tx` step failed by a conflict that did not count as an attempt. */
  #conflicts = 0;
  #instance: LoadedInstance;
  /** The last reading of the database clock, and the monotonic clock at that moment. */
  #lastReading: { readonly nowMs: number; readonly atMs: number };

  constructor(parts: HandleParts) {
    this.#parts = parts;
    this.#instance = parts.instance;
    this.#lastReading = { nowMs: parts.instance.nowMs, atMs: systemClock.monotonicMs() };
  }

  get instance(): LoadedInstance {
    return this.#instance;
  }

  /** Estimate of the database clock, in milliseconds. */
  get nowMs(): number {
    return this.#lastReading.nowMs + (systemClock.monotonicMs() - this.#lastReading.atMs);
  }

  get dueMs(): number | null {
    return nextDueMs(this.#instance.state, hasEnded(this.#instance.status));
  }

  /** Local steps and undos that are due. */
  dueWork(state = this.#instance.state): LocalWork[] {
    return listLocalWork(this.#parts.definition, state, this.nowMs);
  }

  /** Whether a timer is due, or an earlier worker died while it held the claim. */
  isClockDue(): boolean {
    const { state, claims } = this.#instance;
    return claims > 1 || clockIsDue(this.#parts.definition, state, this.nowMs);
  }

  /** Applies pending input in its order of arrival, then the clock. */
  async tick(): Promise<void> {
    const { engine, begin, definition } = this.#parts;
    const { id } = this.#instance;
    const ticked = await begin(async (tx) => {
      let instance = await this.#load(tx);
      let { rows } = await tx.run<PendingInputRow>(engine.sql.input, [id]);
      if (rows.some(({ cause }) => cause === COLLECT)) {
        await tx.run(engine.sql.collect, [id, instance.type, instance.key]);
        ({ rows } = await tx.run<PendingInputRow>(engine.sql.input, [id]));
      }
      for (const { id: inputId, cause, input: text } of rows) {
        const input = await decodePendingInput(engine.parts.vault, inputId, text, tx);
        ({ instance } = await engine.apply(tx, definition, instance, { cause, input }));
      }
      if (rows.length > 0)
        await tx.run(engine.sql.deleteInput, [id, toArrayLiteral(rows.map((row) => row.id))]);
      const tick = { cause: "clock", input: this.#tickInput() };
      ({ instance } = await engine.apply(tx, definition, instance, tick));
      return { ...instance, claims: 0 };
    });
    this.#update(ticked);
  }

  /**
   * Saves the outcome of local work. A decision without further effects is saved in one statement, which also releases
   * the claim if `isLast` returns true. Resolves with whether the claim was released.
   */
  async settle(
    work: LocalWork,
    outcome: WorkOutcome,
    isLast: (decision: Decision) => boolean,
  ): Promise<boolean> {
    const { engine, definition, begin } = this.#parts;
    const cause = this.toCause(work, outcome);
    const known = atTime(this.#instance, this.nowMs);
    const decision = engine.decide(definition, known, cause.input);
    if (engine.isStateOnly(decision)) {
      const { maxStateBytes } = engine.parts;
      const release = isLast(decision);
      const text = unlessTooLarge(() =>
        toJsonText(buildTransition(definition, known, decision, cause, { release, maxStateBytes })),
      );
      const moved = applyDecision(known, decision);
      if (text !== undefined && (await this.#save(text, known, cause, moved))) {
        this.#update(moved);
        engine.emitChanges(known, decision, cause.cause);
        return release;
      }
    }
    const settled = await begin(async (tx) => {
      const current = await this.#load(tx);
      return engine.apply(tx, definition, current, cause);
    });
    this.#update(settled.instance);
    return false;
  }

  /**
   * Runs a `tx` step: its writes, its result and the effects of the decision are one transaction, which also releases
   * the claim if `isLast` returns true. Resolves with whether the claim was released.
   */
  async runInTransaction(work: LocalWork, isLast: (decision: Decision) => boolean): Promise<boolean> {
    const { engine, begin, definition } = this.#parts;
    const timeoutMs = localTimeoutMs(work);
    let released = false;
    const release = (decision: Decision): boolean => (released = isLast(decision));
    try {
      const done = await begin(
        async (tx) => {
          const current = await this.#load(tx);
          const name = workName(work);
          const still = listLocalWork(definition, current.state, current.nowMs).find(
            (one) => workName(one) === name,
          );
          if (still === undefined) return current;
          const outcome = await traceStep(engine.parts.spans, work, current, () =>
            withDeadline(runTxStep(still, current, tx.forUser()), timeoutMs, () => {
              tx.destroy(); // the step may never end, and its transaction locks the instance's row
              throw new SagaboxError("HANDLER_TIMEOUT", timeoutOutcome(work).error);
            }),
          );
          const cause = this.toCause(work, outcome);
          const now = { ...current, nowMs: this.nowMs }; // timers of the next step start after this one
          const { instance } = await engine.apply(tx, definition, now, cause, { whole: true, release });
          return instance;
        },
        { idleTimeoutMs: timeoutMs, forUser: definition.library !== null },
      );
      this.#update(done);
      this.#conflicts = 0;
      return released;
    } catch (error) {
      const isOwnError = error instanceof InstanceGone || isSagaboxError(error, "SAGA_CONFLICT");
      const failure = toFailure(error);
      if (isOwnError || (failure.kind === "infrastructure" && this.#isFreeRetry(failure))) throw error;
      this.#conflicts = 0;
      const permanent = failure.kind === "permanent" || isSagaboxError(error, "SAGA_STATE_TOO_LARGE");
      const certain = !isSagaboxError(error, "TRANSACTION_COMMITTED"); // a COMMIT inside the step made its earlier writes permanent
      const outcome = { kind: "failed", error: storableErrorText(error), certain, permanent } as const;
      return this.settle(work, outcome, () => false);
    }
  }

  // A conflict or timeout reported by the server may recur for ever, so free retries are limited. An outage is always free.
  #isFreeRetry({ mayNeverPass }: Failure): boolean {
    return mayNeverPass !== true || ++this.#conflicts <= MAX_FREE_CONFLICTS;
  }

  /** Stores a late outcome as pending input for the next worker that claims the instance. */
  async reportLate(work: LocalWork, outcome: WorkOutcome): Promise<void> {
    const { engine, database } = this.#parts;
    const { cause, input } = this.toCause(work, outcome);
    const { id, seal } = this.#instance;
    await engine.addPendingInput(database, id, engine.parts.newId(), cause, input, seal);
  }

  async release(): Promise<void> {
    const { engine, database, worker } = this.#parts;
    await database.run(engine.sql.release, [this.#instance.id, worker]);
  }

  toCause({ stepPath, undo, epoch, attempt }: LocalWork, outcome: WorkOutcome): Cause {
    const input: SagaInput = { kind: "worked", stepPath, undo, epoch, attempt, outcome };
    return { cause: `worker:${this.#parts.worker}`, input };
  }

  async #load(tx: SagaTransaction): Promise<LoadedInstance> {
    const { id } = this.#instance;
    const current = await this.#parts.engine.load(tx, id);
    if (current === undefined)
      throw new InstanceGone(`saga ${id} was deleted, or its data subject was erased`);
    this.#lastReading = { nowMs: current.nowMs, atMs: systemClock.monotonicMs() };
    return current;
  }

  #save(text: string, before: LoadedInstance, cause: Cause, moved: LoadedInstance): Promise<boolean> {
    const { engine, writer } = this.#parts;
    const { spans } = engine.parts;
    const { id } = before;
    if (!spans.enabled) return writer.save({ id, text });
    const write = async () => ((await writer.save({ id, text })) ? { instance: moved } : {});
    return traceTransition(spans, before, cause, write).then(({ instance }) => instance !== undefined);
  }

  #tickInput(): SagaInput {
    const { claims } = this.#instance;
    return claims > 1 ? { kind: "tick", claims } : { kind: "tick" };
  }

  // Call this only after the commit: a rolled-back state must not start work. Concurrent writes may resolve out of order,
  // so an older version is dropped.
  #update(instance: LoadedInstance): void {
    if (instance.version < this.#instance.version) return;
    this.#instance = instance;
  }
}

export function workName({ stepPath, undo, epoch, attempt }: LocalWork): string {
  return `${stepPath} ${undo ? "undo" : "do"} ${epoch}.${attempt}`;
}

// If the state is too large, the caller falls back to a transaction, which drops the result.
function unlessTooLarge<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    if (isSagaboxError(error, "SAGA_STATE_TOO_LARGE")) return undefined;
    throw error;
  }
}
