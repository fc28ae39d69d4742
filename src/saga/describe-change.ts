import type { TelemetryEvents } from "../telemetry/index.ts";
import type { Decision } from "./decision.ts";
import type { LoadedInstance } from "./saga-store.ts";
import type { SagaState, SagaStatus, StepRecord } from "./state.ts";
import { ENCRYPTED_TEXT } from "./subject-cipher.ts";

type Named = Pick<LoadedInstance, "id" | "type" | "key" | "seal">;

/** The instance as log lines name it. The key may hold personal data, like the texts of errors. */
export function nameInstance({ id, type, key, seal }: Named): Record<"type" | "id" | "key", string> {
  return { type, id, key: seal === undefined ? key : ENCRYPTED_TEXT };
}

/** The fields of `saga.changed`. `cause`: what moved the instance, as in its history. */
export function describeStatusChange(
  before: Named & Pick<LoadedInstance, "status">,
  { status, state, effects, changes }: Pick<Decision, "status" | "state" | "effects" | "changes">,
  cause: string,
): TelemetryEvents["saga.changed"] {
  const incident = effects.find((effect) => effect.kind === "open incident");
  const why = incident?.error ?? (isCompensation(status) ? state.cause : undefined);
  const failed = changes.findLast(({ event, stepPath }) => event === "failed" && stepPath !== undefined);
  const last = changes.findLast(({ stepPath }) => stepPath !== undefined);
  const show = (text: string): string => (before.seal === undefined ? text : ENCRYPTED_TEXT);
  return {
    ...nameInstance(before),
    from: before.status,
    to: status,
    step:
      incident?.stepPaths.join(", ") ??
      (isCompensation(status) ? failed?.stepPath : undefined) ??
      listStepsInProgress(state) ??
      last?.stepPath ??
      null,
    cause: why === undefined ? toTrigger(cause) : show(why),
    error: incident === undefined ? null : show(incident.error),
  };
}

/** The fields of `saga.step` for a step whose status changed. */
export function describeStepChange(
  instance: Named,
  step: string,
  { status, startedAtMs, endedAtMs, error }: StepRecord,
  cause: string,
): TelemetryEvents["saga.step"] {
  const isShown = status === "failed" && error !== undefined;
  return {
    ...nameInstance(instance),
    step,
    status,
    cause: toTrigger(cause),
    error: !isShown ? null : instance.seal === undefined ? error : ENCRYPTED_TEXT,
    durationMs: (endedAtMs ?? startedAtMs) - startedAtMs,
  };
}

/** The steps and undos in progress. Null without any, or if the stored state is damaged. */
export function listStepsInProgress(state: Partial<Pick<SagaState, "records">>): string | null {
  const records = state.records ?? {};
  const open = Object.keys(records).filter((stepPath) => {
    const record = records[stepPath];
    return record?.status === "in_progress" || record?.undo?.status === "in_progress";
  });
  return open.length === 0 ? null : open.join(", ");
}

// The id behind `start:` is that of the instance itself.
function toTrigger(cause: string): string {
  return cause.startsWith("start:") ? "start" : cause;
}

function isCompensation(status: SagaStatus): boolean {
  return status === "compensating" || status === "compensated";
}
