import { isSagaboxError, verdictOf } from "../errors/index.ts";
import { encodeJson, runInMessageContext, type Json, type MessageContext } from "../message/index.ts";
import { classifyFailure } from "../retry/index.ts";
import { withDeadline } from "../runtime/index.ts";
import type { Sql } from "../storage/index.ts";
import { messageOf } from "./begin.ts";
import type { Seen } from "./definition.ts";
import { resultsOf, undoing } from "./draft.ts";
import type { WorkOutcome } from "./input.ts";
import type { Loaded } from "./saga-store.ts";
import type { LocalWork } from "./timers.ts";
import type { Wanted } from "./wanted.ts";

/** How long a function that was told to end may take to say how it ended. */
const GRACE_MS = 2_000;

/** The key under which whatever is outside knows this step, in all its attempts, and in its undo. */
export function idempotencyKeyOf(sagaId: string, place: string): string {
  return `${sagaId}:${place}`;
}

function seenBy({ id, input, state }: Loaded): Seen {
  return { input, steps: resultsOf(state), sagaId: id };
}

/**
 * Runs a step or its undo outside the transaction, within its time. Never throws; a function that makes no promise has
 * its outcome at once. What does not end in time has an unknown outcome; if it succeeds after all, `tellLate` hears of it.
 */
export function doOutside(
  work: LocalWork,
  instance: Loaded,
  wanted: Wanted,
  tellLate: (outcome: WorkOutcome) => void,
): WorkOutcome | Promise<WorkOutcome> {
  try {
    const given = runInMessageContext(contextOf(instance), () => promised(call(work, instance, wanted)));
    return given instanceof Promise ? inTime(work, given, wanted, tellLate) : succeeded(given);
  } catch (thrown) {
    return failed(thrown);
  }
}

/** Given up while nobody here did it. Whoever may have begun it has died, or says late that it was done. */
export function unwanted({ undo, record }: LocalWork): WorkOutcome | undefined {
  return undo || record.abandoned === undefined ? undefined : { kind: "unknown", error: record.abandoned };
}

function contextOf({ id, correlationId, traceparent }: Loaded): MessageContext {
  return { messageId: id, correlationId, traceparent, sagaId: id };
}

function call(
  { step, place, undo, record, attempt }: LocalWork,
  { id, input, state }: Loaded,
  wanted: Wanted,
): unknown {
  const seen = {
    input,
    steps: resultsOf(state),
    sagaId: id,
    idempotencyKey: idempotencyKeyOf(id, place),
    get signal() {
      return wanted.signal;
    },
    attempt,
  };
  if (!undo) return step.work.kind === "run" ? step.work.work(seen) : undefined;
  return step.undo?.kind === "run" ? step.undo.work(Object.assign(seen, undoing(record))) : undefined;
}

// Whatever can be waited for as a promise, in the context in which it was made.
function promised(value: unknown): unknown {
  const then = (value as Partial<PromiseLike<unknown>> | null | undefined)?.then;
  return typeof then === "function" ? Promise.resolve(value) : value;
}

function inTime(
  { step }: LocalWork,
  running: Promise<unknown>,
  wanted: Wanted,
  tellLate: (outcome: WorkOutcome) => void,
): Promise<WorkOutcome> {
  const timeoutMs = step.timeoutMs ?? 30_000;
  const outcome = running.then(succeeded, failed);
  return withDeadline(outcome, timeoutMs, async () => {
    const error = `it did not end within ${timeoutMs} ms`;
    wanted.end(new Error(error));
    return withDeadline(outcome, GRACE_MS, () => {
      void outcome.then((ended) => ended.kind === "done" && tellLate(ended));
      return { kind: "unknown", error } as const;
    });
  });
}

/** Runs a `tx` step or its undo inside the open transaction. Throws what it throws: everything is rolled back then. */
export async function doInside(work: LocalWork, instance: Loaded, tx: Sql): Promise<WorkOutcome> {
  const { step, undo, record } = work;
  const seen = { ...seenBy(instance), tx: { query: tx.query.bind(tx) } };
  if (undo) {
    if (step.undo?.kind === "tx") await step.undo.work({ ...seen, ...undoing(record) });
    return { kind: "done" };
  }
  const result = step.work.kind === "tx" ? await step.work.work(seen) : undefined;
  return { kind: "done", result: stored(result) };
}

function succeeded(result: unknown): WorkOutcome {
  try {
    return { kind: "done", result: stored(result) };
  } catch (error) {
    return { kind: "failed", error: `its result cannot be stored: ${messageOf(error)}`, permanent: true };
  }
}

function failed(thrown: unknown): WorkOutcome {
  const error = messageOf(thrown);
  const verdict = verdictOf(thrown)?.kind;
  if (verdict === "refuse" || verdict === "ignore") return { kind: "refused", error };
  if (isSagaboxError(thrown, "HANDLER_TIMEOUT")) return { kind: "unknown", error };
  return { kind: "failed", error, permanent: classifyFailure(thrown) === "permanent" };
}

function stored(result: unknown): Json | undefined {
  return result === undefined ? undefined : (JSON.parse(encodeJson(result)) as Json);
}
