import { auditFlags, SagaboxError } from "../../errors/index.ts";
import {
  type AnyEvent,
  encodeJson,
  type InputOf,
  type Json,
  SUBJECT_ERASED,
  toWireData,
} from "../../message/index.ts";
import { findNearest, rejectUnknownKeys, text } from "../../options/index.ts";
import {
  decide,
  encryptText,
  findStuckSteps,
  hasEnded,
  type InstanceRow,
  type LoadedInstance,
  openInstance,
  type Operator,
  otherKey,
  type SagaDefinition,
  type SagaInput,
  type SagaState,
  type StepRecord,
} from "../../saga/index.ts";
import type { AdminTransaction } from "../admin-database.ts";
import { auditFailure, notFound, readOperator, type SagaAdmin } from "./saga-admin.ts";

export interface ActionResult {
  readonly sagaId: string;
  /** False if nothing was added, because the request is already done or pending. */
  readonly accepted: boolean;
}

export interface StepAction extends Operator {
  /** The step, as `show` names it. */
  readonly step: string;
}

/** Retries a failed step or its undo from the first attempt; without `step`, all failed ones. Throws SAGA_ACTION_REFUSED. */
export function retryStep(
  admin: SagaAdmin,
  id: string,
  options: Operator & { readonly step?: string },
): Promise<ActionResult> {
  const by = checkOperator("sagas.retry", options, ["step"]);
  const stepPath = options.step === undefined ? {} : { stepPath: checkStepName("sagas.retry", options.step) };
  return act(admin, id, { kind: "retry", ...stepPath, by });
}

/** Skips a failed step or its undo, and continues. Effects of the step stay. Throws SAGA_ACTION_REFUSED. */
export function skipStep(admin: SagaAdmin, id: string, options: StepAction): Promise<ActionResult> {
  const by = checkOperator("sagas.skip", options, ["step"]);
  return act(admin, id, { kind: "skip", stepPath: checkStepName("sagas.skip", options.step), by });
}

/** Marks a failed step or its undo as done by hand, with its `result`. Throws SAGA_ACTION_REFUSED. */
export function settleStep(
  admin: SagaAdmin,
  id: string,
  options: StepAction & { readonly result?: Json },
): Promise<ActionResult> {
  const by = checkOperator("sagas.settle", options, ["step", "result"]);
  const result = options.result === undefined ? {} : { result: options.result };
  return act(admin, id, {
    kind: "settle",
    stepPath: checkStepName("sagas.settle", options.step),
    ...result,
    by,
  });
}

/** Undoes an instance, even a completed one, unless it is past its pivot. */
export function compensateSaga(admin: SagaAdmin, id: string, options: Operator): Promise<ActionResult> {
  return act(admin, id, { kind: "compensate", by: checkOperator("sagas.compensate", options) });
}

/** Undoes an instance that has not completed. */
export function cancelSaga(admin: SagaAdmin, id: string, options: Operator): Promise<ActionResult> {
  return act(admin, id, { kind: "cancel", by: checkOperator("sagas.cancel", options) });
}

function checkOperator(where: string, options: Operator, more: readonly string[] = []): Operator {
  rejectUnknownKeys(where, options, ["actor", "reason", ...more]);
  return readOperator(where, options);
}

function checkStepName(where: string, step: unknown): string {
  return text(`${where}: step`, step, { max: 500 });
}

async function act(
  admin: SagaAdmin,
  id: string,
  asked: Exclude<RequestedAction, { kind: "event" }>,
): Promise<ActionResult> {
  const entry = { ...asked.by, action: `saga.${asked.kind}`, target: { kind: "saga", id: String(id) } };
  const perform = (): Promise<ActionResult> =>
    runLocked(
      admin,
      (tx) => loadById(admin, tx, id),
      async (tx, instance) => {
        const stepPath = "stepPath" in asked ? (asked.stepPath ?? "") : "";
        // With the version in its id, a repeated request is recognised as a duplicate.
        const letter = `${asked.kind}:${instance.id}:${instance.version}:${stepPath}`;
        return postInput(admin, tx, instance, { letter, cause: `operator:${asked.by.actor}`, asked });
      },
    );
  return auditFailure(admin, entry, perform);
}

export async function loadById(admin: SagaAdmin, tx: AdminTransaction, id: string): Promise<LoadedInstance> {
  const [row] = (await tx.run<InstanceRow>(admin.sagas.load, [String(id)])).rows;
  if (row === undefined) throw notFound(String(id));
  return openOrRefuse(admin, tx, row);
}

/** Decrypts the instance. Throws SAGA_ACTION_REFUSED if its state is erased or its key is missing. */
export async function openOrRefuse(
  { vault }: SagaAdmin,
  tx: AdminTransaction,
  row: InstanceRow,
): Promise<LoadedInstance> {
  const instance = await openInstance(vault, row, tx);
  if (typeof instance !== "string") return instance;
  const why =
    instance === "erased"
      ? `${SUBJECT_ERASED}, and with them its state; close it: sagabox privacy end-saga ${row.id} ${auditFlags("data erased")}`
      : "it is about a person, and there is no key for it here: set SAGABOX_KEY_RING_FILE";
  throw new SagaboxError("SAGA_ACTION_REFUSED", `Nothing can be decided about saga ${row.id}: ${why}.`);
}

type ActionOutcome = ActionResult | SagaboxError;

/** Runs `work` with the instance locked. An error that it returns, not throws, is thrown after the commit. */
export async function runLocked(
  { database }: SagaAdmin,
  load: (tx: AdminTransaction) => Promise<LoadedInstance>,
  work: (tx: AdminTransaction, instance: LoadedInstance) => Promise<ActionOutcome>,
): Promise<ActionResult> {
  const tx = await database.begin();
  let done: ActionOutcome;
  try {
    done = await work(tx, await load(tx));
    await tx.commit();
  } catch (error) {
    await tx.rollback();
    throw error;
  }
  if (done instanceof Error) throw done;
  return done;
}

export interface OperatorInput {
  readonly letter: string;
  readonly cause: string;
  readonly asked: RequestedAction;
}

/** Stores the request as pending input for a worker that knows the definition. A refused request is recorded as well. */
export async function postInput(
  { sagas, definitionOf }: SagaAdmin,
  tx: AdminTransaction,
  instance: LoadedInstance,
  { letter, cause, asked }: OperatorInput,
): Promise<ActionOutcome> {
  const { id, type, definitionVersion, version } = instance;
  const judgement = judgeAction(instance, asked, definitionOf(type, definitionVersion));
  if (judgement.kind === "already") return { sagaId: id, accepted: false };
  const text = encodeJson(asked as unknown as Json);
  if (judgement.kind === "refused") {
    const input = encryptText(instance.seal, text, id, ["ignored", cause]);
    const { actor = null, reason = null } = asked.by ?? {};
    await tx.run(sagas.ignore, [id, version, judgement.why, cause, actor, input, reason]);
    return new SagaboxError(
      "SAGA_ACTION_REFUSED",
      `Saga ${id} cannot do "${asked.kind}": ${judgement.why}.`.replace(/([.?])\.$/, "$1"),
    );
  }
  const input = encryptText(instance.seal, text, letter, ["pending_input"]);
  const { rows } = await tx.run(sagas.post, [id, letter, cause, input]);
  return { sagaId: id, accepted: rows.length === 1 };
}

/** Actions that an operator may request. */
type RequestedAction = Extract<
  SagaInput,
  { readonly kind: "compensate" | "cancel" | "retry" | "skip" | "settle" | "event" }
>;

/** `already`: the requested state is reached or in progress. */
type Judgement =
  { readonly kind: "possible" | "already" } | { readonly kind: "refused"; readonly why: string };

const possible: Judgement = { kind: "possible" };
const already: Judgement = { kind: "already" };
const refuseAction = (why: string): Judgement => ({ kind: "refused", why });

/**
 * Refuses a request that cannot succeed. If the definition is known, the decision is tried out; the worker decides again
 * when it processes the request.
 */
function judgeAction(
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
      if (state.pivoted) return refuseAction("it is past its pivot and can only go forward");
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
  if (asked.stepPath === undefined) {
    if (failed.length > 0) return possible;
    return refuseAction(ended ? "it has ended" : "no step of it has failed");
  }
  if (failed.includes(asked.stepPath)) return possible;
  const record = state.records[asked.stepPath];
  if (record !== undefined && isAlreadyDone(record, asked.kind)) return already;
  if (record !== undefined)
    return refuseAction(`step "${asked.stepPath}" has not failed: it is ${record.status}`);
  return refuseAction(
    `no step "${asked.stepPath}" of it has begun.${suggestStep(asked.stepPath, failed, state)}`,
  );
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

/** An instance, by its id or by its type and key. */
export type SagaTarget =
  string | { readonly sagaId: string } | { readonly type: string; readonly key: string };

export interface SignalOptions extends Operator {
  /** Id of the signal. A second signal with this id to the same instance has no effect. */
  readonly id: string;
}

/** Delivers an event to an instance without publishing it. Throws SAGA_NOT_FOUND, SAGA_ACTION_REFUSED or PAYLOAD_INVALID. */
export async function signalSaga<E extends AnyEvent>(
  admin: SagaAdmin,
  target: SagaTarget,
  event: E,
  data: InputOf<E>,
  options: SignalOptions,
): Promise<ActionResult> {
  rejectUnknownKeys("sagas.signal", options, ["actor", "reason", "id"]);
  const by = readOperator("sagas.signal", options);
  const id = text("sagas.signal: id", options.id);
  const checked = (await toWireData(event, data)) as Json;
  encodeJson(checked); // refuses here what could not be kept
  const { sql, sagas } = admin;
  const entry = { ...by, action: "saga.signal", target: { kind: "saga", id: describeTarget(target) } };
  const perform = (): Promise<ActionResult> =>
    runLocked(
      admin,
      async (tx) => {
        if (typeof target === "string") return loadById(admin, tx, target);
        if ("sagaId" in target) return loadById(admin, tx, target.sagaId);
        const { rows } = await tx.run<InstanceRow>(sagas.loadByKey, [target.type, target.key]);
        if (rows[0] === undefined) throw notFound(`${target.type} ${target.key}`);
        return openOrRefuse(admin, tx, rows[0]);
      },
      async (tx, instance) => {
        const cause = `signal:${id}`;
        const heard = await tx.run(sql.heard, [instance.id, cause]);
        if (heard.rows.length > 0) return { sagaId: instance.id, accepted: false };
        const asked = { kind: "event", id, type: event.name, data: checked, by } as const;
        return postInput(admin, tx, instance, { letter: `signal:${instance.id}:${id}`, cause, asked });
      },
    );
  return auditFailure(admin, entry, perform);
}

function describeTarget(target: SagaTarget): string {
  if (typeof target === "string") return target;
  return "sagaId" in target ? target.sagaId : `${target.type} ${target.key}`;
}
