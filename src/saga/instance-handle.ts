import { isSagaboxError, SagaboxError } from "../errors/index.ts";
import { toFailure, MAX_FREE_CONFLICTS, type Failure } from "../retry/index.ts";
import { systemClock, withDeadline } from "../runtime/index.ts";
import { toArrayLiteral, type Database, type Sql, type TransactionOptions } from "../storage/index.ts";
import { storableErrorText } from "./begin.ts";
import type { Decision } from "./decision.ts";
import type { SagaDefinition } from "./definition.ts";
import type { SagaEngine, SagaTransaction } from "./engine.ts";
import type { SagaInput, WorkOutcome } from "./input.ts";
import { decodePendingInput } from "./pending-input.ts";
import { runTxStep } from "./local-step.ts";
import { applyDecision, atTime, type Cause, type LoadedInstance } from "./saga-store.ts";
import { COLLECT } from "./start.ts";
import { hasEnded } from "./state.ts";
import { traceStep, traceTransition } from "./trace-saga.ts";
import { toJsonText, buildTransition } from "./transition.ts";
import type { TransitionWriter } from "./transition-writer.ts";
import { clockIsDue, listLocalWork, nextDueMs, type LocalWork } from "./timers.ts";

/** A transaction of ours: commits when the work resolves, rolls back when it throws. */
export type OpenTransaction = <T>(
  work: (tx: SagaTransaction & Sql & Destroyable) => Promise<T>,
  limits?: Pick<TransactionOptions, "idleTimeoutMs">,
) => Promise<T>;

interface Destroyable {
  /** Ends the connection: whatever is still tried on it fails, and nothing of it stays. */
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

/** There is nothing left that could be moved. */
export class InstanceGone extends Error {}

/** One instance as far as this process knows it, and the ways to move it. Whoever else moves it is noticed by the version. */
export class InstanceHandle {
  readonly #parts: HandleParts;
  /** How often in a row a `tx` step failed by a conflict that did not count as an attempt. */
  #conflicts = 0;
  #instance: LoadedInstance;
  /** The database's clock when it was last read, and our own steady clock then: from there on its time is reckoned. */
  #lastReading: { readonly nowMs: number; readonly atMs: number };

  constructor(parts: HandleParts) {
    this.#parts = parts;
    this.#instance = parts.instance;
    this.#lastReading = { nowMs: parts.instance.nowMs, atMs: systemClock.monotonicMs() };
  }

  get instance(): LoadedInstance {
    return this.#instance;
  }

  /** The database's clock, reckoned on from when it was last read. */
  get nowMs(): number {
    return this.#lastReading.nowMs + (systemClock.monotonicMs() - this.#lastReading.atMs);
  }

  get dueMs(): number | null {
    return nextDueMs(this.#instance.state, hasEnded(this.#instance.status));
  }

  /** Steps and undos of our own whose time has come. */
  dueWork(state = this.#instance.state): LocalWork[] {
    return listLocalWork(this.#parts.definition, state, this.nowMs);
  }

  /** Whether time alone changes something now, or somebody died with it in hand. */
  isClockDue(): boolean {
    const { state, claims } = this.#instance;
    return claims > 1 || clockIsDue(this.#parts.definition, state, this.nowMs);
  }

  /** What was left for it first, then the clock. */
  async tick(): Promise<void> {
    const { engine, begin, definition } = this.#parts;
    const { id } = this.#instance;
    const ticked = await begin(async (tx) => {
      let instance = await this.#load(tx);
      let { rows } = await tx.run<PendingInputRow>(engine.sql.mail, [id]);
      if (rows.some(({ cause }) => cause === COLLECT)) {
        await tx.run(engine.sql.collect, [id, instance.type, instance.key]);
        ({ rows } = await tx.run<PendingInputRow>(engine.sql.mail, [id]));
      }
      for (const { id: letterId, cause, input: kept } of rows) {
        const letter = { cause, input: await decodePendingInput(engine.parts.vault, letterId, kept, tx) };
        ({ instance } = await engine.apply(tx, definition, instance, letter));
      }
      if (rows.length > 0)
        await tx.run(engine.sql.forgetMail, [id, toArrayLiteral(rows.map((row) => row.id))]);
      const tick = { cause: "clock", input: this.#tickInput() };
      ({ instance } = await engine.apply(tx, definition, instance, tick));
      return { ...instance, claims: 0 };
    });
    this.#update(ticked);
  }

  /**
   * Says how local work ended. One statement where nothing else is to be written, with which the claim is given back
   * if `isLast` says so; true when it was.
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
        engine.emitChanges(known, decision);
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
   * Does a `tx` step: its own writes, its result and what follows from it are one transaction, with which the claim is
   * given back if `isLast` says so; true when it was.
   */
  async runInTransaction(work: LocalWork, isLast: (decision: Decision) => boolean): Promise<boolean> {
    const { engine, begin, definition } = this.#parts;
    const timeoutMs = work.step.timeoutMs ?? MAX_TX_STEP_MS;
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
            withDeadline(runTxStep(still, current, tx), timeoutMs, () => {
              tx.destroy(); // it may still hold the instance's row, and what it waits for may never come
              throw stepTimeout(timeoutMs);
            }),
          );
          const cause = this.toCause(work, outcome);
          const now = { ...current, nowMs: this.nowMs }; // the step took its time: what follows begins after it
          const { instance } = await engine.apply(tx, definition, now, cause, { whole: true, release });
          return instance;
        },
        { idleTimeoutMs: timeoutMs },
      );
      this.#update(done);
      this.#conflicts = 0;
      return released;
    } catch (error) {
      const isOurs = error instanceof InstanceGone || isSagaboxError(error, "SAGA_CONFLICT");
      const failure = toFailure(error);
      if (isOurs || (failure.kind === "infrastructure" && this.#isFreeRetry(failure))) throw error;
      this.#conflicts = 0;
      const permanent = failure.kind === "permanent" || isSagaboxError(error, "SAGA_STATE_TOO_LARGE");
      const certain = !isSagaboxError(error, "TRANSACTION_COMMITTED"); // what it wrote before its own COMMIT stays
      const outcome = { kind: "failed", error: storableErrorText(error), certain, permanent } as const;
      return this.settle(work, outcome, () => false);
    }
  }

  // A conflict or timeout that the server reports may come back for ever; a database that is away does not count.
  #isFreeRetry({ mayNeverPass }: Failure): boolean {
    return mayNeverPass !== true || ++this.#conflicts <= MAX_FREE_CONFLICTS;
  }

  /** Leaves for whoever has the instance next how local work ended after all. */
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

  toCause({ place, undo, epoch, attempt }: LocalWork, outcome: WorkOutcome): Cause {
    const input: SagaInput = { kind: "worked", place, undo, epoch, attempt, outcome };
    return { cause: `worker:${this.#parts.worker}`, input };
  }

  async #load(tx: SagaTransaction): Promise<LoadedInstance> {
    const { id } = this.#instance;
    const current = await this.#parts.engine.load(tx, id);
    if (current === undefined) throw new InstanceGone(`saga ${id} is gone, or its person was erased`);
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

  // Only what was committed: whoever goes on from a state that was rolled back does what nobody asked for. Answers may
  // overtake each other: what is older than what we know is no news.
  #update(instance: LoadedInstance): void {
    if (instance.version < this.#instance.version) return;
    this.#instance = instance;
  }
}

export function workName({ place, undo, epoch, attempt }: LocalWork): string {
  return `${place} ${undo ? "undo" : "do"} ${epoch}.${attempt}`;
}

const MAX_TX_STEP_MS = 30_000;

function stepTimeout(timeoutMs: number): SagaboxError {
  return new SagaboxError("HANDLER_TIMEOUT", `it did not end within ${timeoutMs} ms and was rolled back`);
}

// Too large a state is dealt with where a transaction is open.
function unlessTooLarge<T>(work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    if (isSagaboxError(error, "SAGA_STATE_TOO_LARGE")) return undefined;
    throw error;
  }
}
