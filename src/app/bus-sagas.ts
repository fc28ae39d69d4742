import {
  cancelSaga,
  checkSagas,
  compensateSaga,
  listIncidents,
  listSagas,
  retryStep,
  createSagaAdmin,
  readSagaHistory,
  settleStep,
  showSaga,
  signalSaga,
  skipStep,
  findStuckSagas,
  type ActionResult,
  type CheckOptions,
  type HistoryOptions,
  type IncidentFilter,
  type SagaFilter,
  type SagaTarget,
  type SignalOptions,
  type StuckOptions,
} from "../admin/index.ts";
import type { AnyEvent, InputOf } from "../message/index.ts";
import { instanceDiagram, instanceTimeline, type SagaDefinition } from "../saga/index.ts";
import type { Parts } from "./parts.ts";
import type { SagaNews } from "./saga-watch.ts";

export type BusSagas = ReturnType<typeof busSagas>;

/** The operations on saga instances. A worker that has the saga's definition carries out each action. */
export function busSagas({
  database,
  settings,
  sagas,
  sagaWatch,
}: Pick<Parts, "database" | "settings" | "sagas" | "sagaWatch">) {
  const admin = createSagaAdmin(
    database,
    settings.schema,
    () => sagas.registry.all(),
    sagas.engine.parts.vault,
  );
  const hintAfter = async (action: Promise<ActionResult>): Promise<ActionResult> => {
    const result = await action;
    sagas.hint(result.sagaId);
    return result;
  };
  return {
    /** Calls `listener` for every step and status change made by this process. Returns a function that unsubscribes. */
    watch: (listener: (news: SagaNews) => void): (() => void) => sagaWatch.listen(listener),
    /** Lists instances that match the filter. */
    list: (filter?: SagaFilter) => listSagas(admin, filter),
    /** Returns one instance with its steps. Throws if it does not exist. */
    show: (id: string) => showSaga(admin, id),
    /** Returns the recorded transitions of one instance. */
    history: (id: string, options?: HistoryOptions) => readSagaHistory(admin, id, options),
    /** Lists instances that have made no progress for some time. */
    stuck: (options?: StuckOptions) => findStuckSagas(admin, options),
    /** Lists incidents: failed steps that wait for a decision. */
    incidents: (filter?: IncidentFilter) => listIncidents(admin, filter),
    /** Replays recorded histories against the definitions registered in this process and reports differences. */
    check: (options?: CheckOptions) => checkSagas(admin, options),
    /** Lists every definition registered in this process, in every version. */
    definitions: (): readonly SagaDefinition[] => sagas.registry.all(),
    /** Draws one instance in Mermaid: over its definition if that is registered in this process, else as a timeline. */
    diagram: async (id: string): Promise<string> => {
      const { type, definitionVersion, correlationId, status, state } = await showSaga(admin, id);
      const definition = admin.definitionOf(type, definitionVersion);
      const instance = { id, type, key: correlationId, status, state };
      return definition === undefined ? instanceTimeline(instance) : instanceDiagram(definition, instance);
    },
    /** Runs a failed step again. */
    retry: (id: string, options: Parameters<typeof retryStep>[2]) => hintAfter(retryStep(admin, id, options)),
    /** Skips a failed step and continues with the next one. */
    skip: (id: string, options: Parameters<typeof skipStep>[2]) => hintAfter(skipStep(admin, id, options)),
    /** Records the outcome of a step that was completed outside sagabox. */
    settle: (id: string, options: Parameters<typeof settleStep>[2]) =>
      hintAfter(settleStep(admin, id, options)),
    /** Undoes the completed steps of an instance. */
    compensate: (id: string, options: Parameters<typeof compensateSaga>[2]) =>
      hintAfter(compensateSaga(admin, id, options)),
    /** Cancels an instance. */
    cancel: (id: string, options: Parameters<typeof cancelSaga>[2]) =>
      hintAfter(cancelSaga(admin, id, options)),
    /** Delivers an event to an instance that waits for it. Calls with the same `id` take effect once; default: a new id. */
    signal: <E extends AnyEvent>(
      target: SagaTarget,
      event: E,
      data: InputOf<E>,
      options: Omit<SignalOptions, "id"> & { readonly id?: string },
    ) => {
      const id = options.id ?? sagas.engine.parts.newId();
      return hintAfter(signalSaga(admin, target, event, data, { ...options, id }));
    },
  };
}
