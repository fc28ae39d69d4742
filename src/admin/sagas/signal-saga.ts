import { encodeJson, validate, type AnyEvent, type InputOf, type Json } from "../../message/index.ts";
import { rejectUnknownKeys, text } from "../../options/index.ts";
import type { InstanceRow, Operator } from "../../saga/index.ts";
import { postInput, loadById, openOrRefuse, runLocked, type ActionResult } from "./saga-actions.ts";
import { auditFailure, notFound, readOperator, type SagaAdmin } from "./saga-admin.ts";

/** An instance, by its id or by its type and key. */
export type SagaTarget =
  string | { readonly sagaId: string } | { readonly type: string; readonly key: string };

export interface SignalOptions extends Operator {
  /** Names this signal: a second one of the same id to the same instance has no effect. */
  readonly id: string;
}

/** Brings an instance the event it waits for, or will wait for, without publishing it. */
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
  const checked = (await validate(event, data)) as Json;
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
