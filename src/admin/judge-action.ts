import { findNearest } from "../options/index.ts";
import {
  decide,
  hasEnded,
  otherKey,
  findStuckSteps,
  type LoadedInstance,
  type SagaDefinition,
  type SagaInput,
  type SagaState,
  type StepRecord,
} from "../saga/index.ts";

/** What a person may ask of an instance. */
export type RequestedAction = Extract<
  SagaInput,
  { readonly kind: "compensate" | "cancel" | "retry" | "skip" | "settle" | "event" }
>;

/** `already`: what is asked for is so, or on its way, and nothing needs to be done. */
export type Judgement =
  { readonly kind: "possible" | "already" } | { readonly kind: "refused"; readonly why: string };

const possible: Judgement = { kind: "possible" };
const already: Judgement = { kind: "already" };
const refuseAction = (why: string): Judgement => ({ kind: "refused", why });

/**
 * What can be seen to be useless before a worker has a look. Where the definition is known the decision itself is tried
 * out; the worker decides again when it takes it up.
 */
export function judgeAction(
  instance: LoadedInstance,
  asked: RequestedAction,
  definition: SagaDefinition | undefined,
): Judgement {
  const judgement = judgeByState(instance, asked);
  if (judgement.kind !== "possible" || definition === undefined) return judgement;
  const strange = asked.kind === "event" ? otherKey(definition, instance.key, asked) : undefined;
  if (asked.kind === "event" && strange !== undefined) {
    return refuseAction(
      `"${asked.type}" has the key "${strange}" in these data, and its key is "${instance.key}"`,
    );
  }
  const ports = { nowMs: instance.nowMs, newId: () => "tried-out", random: () => 0.5 };
  const { ignored } = decide(definition, instance, asked, ports);
  return ignored === undefined ? possible : refuseAction(ignored);
}

function judgeByState({ status, state }: LoadedInstance, asked: RequestedAction): Judgement {
  switch (asked.kind) {
    case "compensate":
    case "cancel":
      if (state.direction === "backward") return already;
      if (state.pivoted) return refuseAction("it is past its pivot, from where it only goes forward");
      return asked.kind === "cancel" && status === "completed" ? refuseAction("it has completed") : possible;
    case "event":
      if (hasEnded(status)) return refuseAction("it has ended");
      return state.direction === "backward" ? refuseAction("it is being compensated") : possible;
    default:
      return judgeStep(hasEnded(status), state, asked);
  }
}

function judgeStep(
  ended: boolean,
  state: SagaState,
  asked: Extract<RequestedAction, { kind: "retry" | "skip" | "settle" }>,
): Judgement {
  const failed = findStuckSteps(state);
  if (asked.place === undefined) {
    if (failed.length > 0) return possible;
    return refuseAction(ended ? "it has ended" : "no step of it has failed");
  }
  if (failed.includes(asked.place)) return possible;
  const record = state.records[asked.place];
  if (record !== undefined && isAlreadyDone(record, asked.kind)) return already;
  if (record !== undefined)
    return refuseAction(`step "${asked.place}" has not failed: it is ${record.status}`);
  return refuseAction(`no step "${asked.place}" of it has begun.${suggestStep(asked.place, failed, state)}`);
}

function isAlreadyDone({ status, undo }: StepRecord, kind: "retry" | "skip" | "settle"): boolean {
  switch (kind) {
    case "retry":
      return status === "in_progress" || undo?.status === "in_progress";
    case "skip":
      return status === "skipped";
    case "settle":
      return status === "completed" || status === "compensated";
  }
}

function suggestStep(written: string, failed: readonly string[], { records }: SagaState): string {
  const meant = findNearest(written, Object.keys(records));
  if (meant !== undefined) return ` Did you mean "${meant}"?`;
  return failed.length === 0 ? "" : ` What failed is: ${failed.join(", ")}.`;
}
