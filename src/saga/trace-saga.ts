import { failureType, type Spans } from "../telemetry/index.ts";
import type { WorkOutcome } from "./input.ts";
import type { Cause, LoadedInstance } from "./saga-store.ts";
import type { LocalWork } from "./timers.ts";

/** Runs a transition in a span with its input, the new status and the changed steps. */
export function traceTransition<T extends { readonly instance?: LoadedInstance }>(
  spans: Spans,
  before: LoadedInstance,
  cause: Cause,
  work: () => Promise<T>,
): Promise<T> {
  return spans.enabled ? runTransitionInSpan(spans, before, cause, work) : work();
}

async function runTransitionInSpan<T extends { readonly instance?: LoadedInstance }>(
  spans: Spans,
  before: LoadedInstance,
  { input }: Cause,
  work: () => Promise<T>,
): Promise<T> {
  const span = spans.transition(before, {
    "sagabox.saga.version": before.definitionVersion,
    "sagabox.saga.input": input.kind,
    "sagabox.saga.from": before.status,
  });
  try {
    const result = await span.run(work);
    if (result.instance === undefined) return result;
    const { status, state } = result.instance;
    span.set({ "sagabox.saga.status": status });
    for (const [step, record] of Object.entries(state.records)) {
      if (record.status === before.state.records[step]?.status) continue;
      span.note("saga.step", { "sagabox.saga.step": step, "sagabox.saga.step_status": record.status });
    }
    return result;
  } catch (error) {
    span.fail({ type: failureType(error) });
    throw error;
  } finally {
    span.end();
  }
}

/** Runs a local step in a span. The error text is left out if the saga holds personal data. */
export function traceStep(
  spans: Spans,
  step: LocalWork,
  saga: LoadedInstance,
  work: () => WorkOutcome | Promise<WorkOutcome>,
): WorkOutcome | Promise<WorkOutcome> {
  return spans.enabled ? runStepInSpan(spans, step, saga, work) : work();
}

async function runStepInSpan(
  spans: Spans,
  { stepPath, undo, attempt }: LocalWork,
  saga: LoadedInstance,
  work: () => WorkOutcome | Promise<WorkOutcome>,
): Promise<WorkOutcome> {
  const span = spans.step(saga, stepPath, { "sagabox.attempt": attempt, "sagabox.saga.undo": undo });
  try {
    const outcome = await span.run(work);
    span.set({ "sagabox.outcome": outcome.kind });
    if (outcome.kind !== "done") {
      span.fail({ type: outcome.kind, message: saga.seal === undefined ? outcome.error : undefined });
    }
    return outcome;
  } catch (error) {
    span.fail({ type: failureType(error) });
    throw error;
  } finally {
    span.end();
  }
}
