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

/** What people may look at and decide about sagas. An action is done by whichever worker knows the definition. */
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
    /** Hears every step and every change of status that this process makes; what is returned ends it. */
    watch: (hear: (news: SagaNews) => void): (() => void) => sagaWatch.listen(hear),
    list: (filter?: SagaFilter) => listSagas(admin, filter),
    show: (id: string) => showSaga(admin, id),
    history: (id: string, options?: HistoryOptions) => readSagaHistory(admin, id, options),
    stuck: (options?: StuckOptions) => findStuckSagas(admin, options),
    incidents: (filter?: IncidentFilter) => listIncidents(admin, filter),
    /** Plays recorded histories again on the definitions registered here. */
    check: (options?: CheckOptions) => checkSagas(admin, options),
    /** Every definition registered here, in every version. */
    definitions: (): readonly SagaDefinition[] => sagas.registry.all(),
    /** One instance in Mermaid: on its definition where that is registered here, else along the time. */
    diagram: async (id: string): Promise<string> => {
      const { type, definitionVersion, correlationId, status, state } = await showSaga(admin, id);
      const definition = admin.definitionOf(type, definitionVersion);
      const instance = { id, type, key: correlationId, status, state };
      return definition === undefined ? instanceTimeline(instance) : instanceDiagram(definition, instance);
    },
    retry: (id: string, options: Parameters<typeof retryStep>[2]) => hintAfter(retryStep(admin, id, options)),
    skip: (id: string, options: Parameters<typeof skipStep>[2]) => hintAfter(skipStep(admin, id, options)),
    settle: (id: string, options: Parameters<typeof settleStep>[2]) =>
      hintAfter(settleStep(admin, id, options)),
    compensate: (id: string, options: Parameters<typeof compensateSaga>[2]) =>
      hintAfter(compensateSaga(admin, id, options)),
    cancel: (id: string, options: Parameters<typeof cancelSaga>[2]) =>
      hintAfter(cancelSaga(admin, id, options)),
    /** Brings an instance the event it waits for. Without an `id` every call is a signal of its own. */
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
