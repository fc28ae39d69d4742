import { isSagaboxError, readVerdict } from "../errors/index.ts";
import { encodeJson, runInMessageContext, type Json, type MessageContext } from "../message/index.ts";
import { classifyFailure } from "../retry/index.ts";
import { withDeadline } from "../runtime/index.ts";
import type { Sql } from "../storage/index.ts";
import { storableErrorText } from "./begin.ts";
import type { StepContext } from "./definition.ts";
import { collectResults, toUndoContext } from "./draft.ts";
import type { WorkOutcome } from "./input.ts";
import type { LoadedInstance } from "./saga-store.ts";
import type { LocalWork } from "./timers.ts";
import type { Cancellation } from "./cancellation.ts";

/** How long a function that was told to end may take to say how it ended. */
const GRACE_MS = 2_000;

/** The key under which whatever is outside knows this step, in all its attempts, and in its undo. */
export function stepIdempotencyKey(sagaId: string, place: string): string {
  return `${sagaId}:${place}`;
}

function toStepContext({ id, input, state }: LoadedInstance): StepContext {
  return { input, steps: collectResults(state), sagaId: id };
}

/**
 * Runs a step or its undo outside the transaction, within its time. Never throws; a function that makes no promise has
 * its outcome at once. What does not end in time has an unknown outcome; if it succeeds after all, `tellLate` hears of it.
 */
export function runLocalStep(
  work: LocalWork,
  instance: LoadedInstance,
  wanted: Cancellation,
  tellLate: (outcome: WorkOutcome) => void,
): WorkOutcome | Promise<WorkOutcome> {
  try {
    const given = runInMessageContext(toMessageContext(instance), () =>
      toPromise(callStep(work, instance, wanted)),
    );
    return given instanceof Promise ? waitForOutcome(work, given, wanted, tellLate) : toDoneOutcome(given);
  } catch (thrown) {
    return toFailedOutcome(thrown);
  }
}

/** Given up while nobody here did it. Whoever may have begun it has died, or says late that it was done. */
export function abandonedOutcome({ undo, record }: LocalWork): WorkOutcome | undefined {
  return undo || record.abandoned === undefined ? undefined : { kind: "unknown", error: record.abandoned };
}

function toMessageContext({ id, correlationId, traceparent }: LoadedInstance): MessageContext {
  return { messageId: id, correlationId, traceparent, sagaId: id };
}

function callStep(
  { step, place, undo, record, attempt }: LocalWork,
  { id, input, state }: LoadedInstance,
  wanted: Cancellation,
): unknown {
  const seen = {
    input,
    steps: collectResults(state),
    sagaId: id,
    idempotencyKey: stepIdempotencyKey(id, place),
    get signal() {
      return wanted.signal;
    },
    attempt,
  };
  if (!undo) return step.work.kind === "run" ? step.work.work(seen) : undefined;
  return step.undo?.kind === "run" ? step.undo.work(Object.assign(seen, toUndoContext(record))) : undefined;
}

// Whatever can be waited for as a promise, in the context in which it was made.
function toPromise(value: unknown): unknown {
  const then = (value as Partial<PromiseLike<unknown>> | null | undefined)?.then;
  return typeof then === "function" ? Promise.resolve(value) : value;
}

function waitForOutcome(
  { step }: LocalWork,
  running: Promise<unknown>,
  wanted: Cancellation,
  tellLate: (outcome: WorkOutcome) => void,
): Promise<WorkOutcome> {
  const timeoutMs = step.timeoutMs ?? 30_000;
  const outcome = running.then(toDoneOutcome, toFailedOutcome);
  return withDeadline(outcome, timeoutMs, async () => {
    const error = `it did not end within ${timeoutMs} ms`;
    wanted.cancel(new Error(error));
    return withDeadline(outcome, GRACE_MS, () => {
      void outcome.then((ended) => ended.kind === "done" && tellLate(ended));
      return { kind: "unknown", error } as const;
    });
  });
}

/** Runs a `tx` step or its undo inside the open transaction. Throws what it throws: everything is rolled back then. */
export async function runTxStep(work: LocalWork, instance: LoadedInstance, tx: Sql): Promise<WorkOutcome> {
  const { step, undo, record } = work;
  const seen = { ...toStepContext(instance), tx: { query: tx.query.bind(tx) } };
  if (undo) {
    if (step.undo?.kind === "tx") await step.undo.work({ ...seen, ...toUndoContext(record) });
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
