import { isSagaboxError, verdictOf } from "../errors/index.ts";
import { encodeJson, runInMessageContext, type Json } from "../message/index.ts";
import { classifyFailure } from "../retry/index.ts";
import { withDeadline } from "../runtime/index.ts";
import type { Sql } from "../storage/index.ts";
import { messageOf } from "./begin.ts";
import type { Seen, Undoing } from "./definition.ts";
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
 * Runs a step or its undo outside the transaction, within its time. Never throws. What does not end in time has an
 * unknown outcome; if it succeeds after all, `tellLate` hears of it.
 */
export function doOutside(
  work: LocalWork,
  instance: Loaded,
  wanted: Wanted,
  tellLate: (outcome: WorkOutcome) => void,
): Promise<WorkOutcome> {
  const { step, place, undo, record, attempt } = work;
  const timeoutMs = step.timeoutMs ?? 30_000;
  const { id, input, state } = instance;
  const known = undo ? undoing(record) : {};
  const seen = {
    input,
    steps: resultsOf(state),
    sagaId: id,
    idempotencyKey: idempotencyKeyOf(id, place),
    get signal() {
      return wanted.signal;
    },
    attempt,
    ...known,
  };
  const context = {
    messageId: instance.id,
    correlationId: instance.correlationId,
    traceparent: instance.traceparent,
    sagaId: instance.id,
  };
  const running = runInMessageContext(context, async () => {
    if (undo) return step.undo?.kind === "run" ? step.undo.work(seen as typeof seen & Undoing) : undefined;
    return step.work.kind === "run" ? step.work.work(seen) : undefined;
  });
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
