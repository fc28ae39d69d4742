import type { BusTransaction } from "../inbox/index.ts";
import { isSagaboxError, readVerdict } from "../errors/index.ts";
import { encodeJson, runInMessageContext, type Json, type MessageContext } from "../message/index.ts";
import { classifyFailure } from "../retry/index.ts";
import { withDeadline } from "../runtime/index.ts";
import { storableErrorText } from "./begin.ts";
import { toStepContext, toUndoContext } from "./draft.ts";
import type { WorkOutcome } from "./input.ts";
import type { LoadedInstance } from "./saga-store.ts";
import type { LocalWork } from "./timers.ts";

/** How long a function may take to end after its signal was aborted, in milliseconds. */
const GRACE_MS = 2_000;
/** Time limit of a local step, or of its undo, whose step names none, in milliseconds. */
const DEFAULT_TIMEOUT_MS = 30_000;

/** How long one attempt at a local step or its undo may take, in milliseconds. */
export function localTimeoutMs({ step }: Pick<LocalWork, "step">): number {
  return step.timeoutMs ?? DEFAULT_TIMEOUT_MS;
}

/** The outcome of an attempt that exceeded its timeout. The transaction of a `tx` step is rolled back. */
export function timeoutOutcome(
  work: Pick<LocalWork, "kind" | "step">,
): Exclude<WorkOutcome, { kind: "done" }> {
  const error = `it did not end within ${localTimeoutMs(work)} ms`;
  if (work.kind === "run") return { kind: "unknown", error };
  return { kind: "failed", error: `${error} and was rolled back`, certain: true };
}

/** A cancellation flag with a reason. The AbortSignal is created on first access, because most steps never read it. */
export class Cancellation {
  #controller: AbortController | undefined;
  #reason: Error | undefined;

  get signal(): AbortSignal {
    if (this.#controller === undefined) {
      this.#controller = new AbortController();
      if (this.#reason !== undefined) this.#controller.abort(this.#reason);
    }
    return this.#controller.signal;
  }

  /** Whether `cancel` was called. */
  get ended(): boolean {
    return this.#reason !== undefined;
  }

  /** Aborts the signal. Only the first reason counts. */
  cancel(reason: Error): void {
    this.#reason ??= reason;
    this.#controller?.abort(this.#reason);
  }
}

/** The idempotency key of a step for external services. All attempts and the undo share it. */
export function stepIdempotencyKey(sagaId: string, stepPath: string): string {
  return `${sagaId}:${stepPath}`;
}

/**
 * Runs a step or its undo outside the transaction. Never throws. A synchronous function has its outcome at once. If the
 * function exceeds its timeout, the outcome is unknown; if it succeeds later, `onLate` is called with the outcome.
 */
export function runLocalStep(
  work: LocalWork,
  instance: LoadedInstance,
  cancellation: Cancellation,
  onLate: (outcome: WorkOutcome) => void,
): WorkOutcome | Promise<WorkOutcome> {
  try {
    const returned = runInMessageContext(toMessageContext(instance), () =>
      toPromise(callStep(work, instance, cancellation)),
    );
    return returned instanceof Promise
      ? waitForOutcome(work, returned, cancellation, onLate)
      : toDoneOutcome(returned);
  } catch (thrown) {
    return toFailedOutcome(thrown);
  }
}

/** Outcome of work that was abandoned before this worker began it. A worker that began it died, or reports late. */
export function abandonedOutcome({ undo, record }: LocalWork): WorkOutcome | undefined {
  return undo || record.abandoned === undefined ? undefined : { kind: "unknown", error: record.abandoned };
}

function toMessageContext({ id, correlationId, traceparent }: LoadedInstance): MessageContext {
  return { messageId: id, correlationId, traceparent, sagaId: id };
}

function callStep(
  { definition, step, stepPath, undo, record, attempt }: LocalWork,
  instance: LoadedInstance,
  cancellation: Cancellation,
): unknown {
  const seen = {
    ...toStepContext(definition, instance),
    idempotencyKey: stepIdempotencyKey(instance.id, stepPath),
    get signal() {
      return cancellation.signal;
    },
    attempt,
  };
  if (!undo) return step.work.kind === "run" ? step.work.work(seen) : undefined;
  return step.undo?.kind === "run"
    ? step.undo.work(Object.assign(seen, toUndoContext(step, record)))
    : undefined;
}

// Converts a thenable to a promise inside the message context of the step.
function toPromise(value: unknown): unknown {
  const then = (value as Partial<PromiseLike<unknown>> | null | undefined)?.then;
  return typeof then === "function" ? Promise.resolve(value) : value;
}

function waitForOutcome(
  work: LocalWork,
  running: Promise<unknown>,
  cancellation: Cancellation,
  onLate: (outcome: WorkOutcome) => void,
): Promise<WorkOutcome> {
  const outcome = running.then(toDoneOutcome, toFailedOutcome);
  return withDeadline(outcome, localTimeoutMs(work), async () => {
    const ending = timeoutOutcome(work);
    cancellation.cancel(new Error(ending.error));
    return withDeadline(outcome, GRACE_MS, () => {
      void outcome.then((ended) => ended.kind === "done" && onLate(ended));
      return ending;
    });
  });
}

/** What the function of a `tx` step works with. `tx` may be the transaction of the user's library. */
export interface StepTools {
  readonly tx: unknown;
  readonly publish: BusTransaction["publish"];
  readonly start: BusTransaction["start"];
}

/** Runs a `tx` step or its undo inside the open transaction. Rethrows its errors, so that the transaction rolls back. */
export async function runTxStep(
  work: LocalWork,
  instance: LoadedInstance,
  tools: StepTools,
): Promise<WorkOutcome> {
  return runInMessageContext(toMessageContext(instance), () => callTxStep(work, instance, tools));
}

async function callTxStep(
  { definition, step, undo, record }: LocalWork,
  instance: LoadedInstance,
  { tx, publish, start }: StepTools,
): Promise<WorkOutcome> {
  const seen = { ...toStepContext(definition, instance), tx: tx as BusTransaction, publish, start };
  if (undo) {
    if (step.undo?.kind === "tx") await step.undo.work({ ...seen, ...toUndoContext(step, record) });
    return { kind: "done" };
  }
  const result = step.work.kind === "tx" ? await step.work.work(seen) : undefined;
  return { kind: "done", result: toStoredResult(result) };
}

function toDoneOutcome(result: unknown): WorkOutcome {
  try {
    return { kind: "done", result: toStoredResult(result) };
  } catch (error) {
    return {
      kind: "failed",
      error: `its result cannot be stored: ${storableErrorText(error)}`,
      permanent: true,
    };
  }
}

function toFailedOutcome(thrown: unknown): WorkOutcome {
  const error = storableErrorText(thrown);
  const verdict = readVerdict(thrown)?.kind;
  if (verdict === "refuse" || verdict === "ignore") return { kind: "refused", error };
  if (isSagaboxError(thrown, "HANDLER_TIMEOUT")) return { kind: "unknown", error };
  return { kind: "failed", error, permanent: classifyFailure(thrown) === "permanent" };
}

function toStoredResult(result: unknown): Json | undefined {
  return result === undefined ? undefined : (JSON.parse(encodeJson(result)) as Json);
}
