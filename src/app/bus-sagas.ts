import type {
  ActionResult,
  cancelSaga,
  CheckOptions,
  compensateSaga,
  HistoryOptions,
  IncidentFilter,
  retryStep,
  SagaAdmin,
  SagaFilter,
  SagaTarget,
  settleStep,
  SignalOptions,
  skipStep,
  StuckOptions,
} from "../admin/index.ts";
import { SagaboxError } from "../errors/index.ts";
import { type AnyEvent, currentMessageContext, type InputOf } from "../message/index.ts";
import {
  instanceDiagram,
  instanceTimeline,
  type ResultOptions,
  type ResultTarget,
  type SagaDefinition,
  type SagaResult,
} from "../saga/index.ts";
import { isInsideTransaction } from "./bus-transaction.ts";
import { loadAdmin, type AdminOperations } from "./load-admin.ts";
import type { Parts } from "./parts.ts";
import type { SagaNews } from "./saga-watch.ts";

export type BusSagas = ReturnType<typeof busSagas>;

/** The operations on saga instances. A worker that has the saga's definition carries out each action. */
export function busSagas({
  database,
  settings,
  sagas,
  sagaWatch,
  sagaResults,
}: Pick<Parts, "database" | "settings" | "sagas" | "sagaWatch" | "sagaResults">) {
  let admin: SagaAdmin | undefined;
  const withAdmin = async <T>(
    work: (operations: AdminOperations, admin: SagaAdmin) => Promise<T>,
  ): Promise<T> => {
    const operations = await loadAdmin();
    const { registry, engine } = sagas;
    admin ??= operations.createSagaAdmin(database, settings.schema, () => registry.all(), engine.parts.vault);
    return work(operations, admin);
  };
  const withHint: typeof withAdmin<ActionResult> = async (work) => {
    const result = await withAdmin(work);
    sagas.hint(result.sagaId);
    return result;
  };
  return {
    /** Calls `listener` for every step and status change made by this process. Returns a function that unsubscribes. */
    watch: (listener: (news: SagaNews) => void): (() => void) => sagaWatch.listen(listener),
    /**
     * Waits until a saga has ended and resolves with its result, or with the failure because of which it was undone or
     * waits for an operator. Takes the id of the instance, or `{ key }` with its key, for example if a message starts it.
     * Works in every process. Throws SAGA_RESULT_TIMEOUT if `timeout` passes before, SAGA_NOT_FOUND if there is no such
     * instance by then, and REQUEST_IN_TRANSACTION in a handler or `bus.transaction()`.
     */
    result: async <R>(
      saga: { readonly definition: SagaDefinition; readonly "~saga": { readonly results: R } },
      target: ResultTarget,
      options: ResultOptions,
    ): Promise<SagaResult<R>> => {
      if (currentMessageContext() !== undefined || isInsideTransaction()) throw waitInTransaction();
      return sagaResults.wait(saga.definition, target, options) as Promise<SagaResult<R>>;
    },
    /** Lists instances that match the filter. */
    list: (filter?: SagaFilter) => withAdmin((use, admin) => use.listSagas(admin, filter)),
    /** Returns one instance with its steps. Throws if it does not exist. */
    show: (id: string) => withAdmin((use, admin) => use.showSaga(admin, id)),
    /** Returns the recorded transitions of one instance. */
    history: (id: string, options?: HistoryOptions) =>
      withAdmin((use, admin) => use.readSagaHistory(admin, id, options)),
    /** Lists instances that have made no progress for some time. */
    stuck: (options?: StuckOptions) => withAdmin((use, admin) => use.findStuckSagas(admin, options)),
    /** Lists incidents: failed steps that wait for a decision. */
    incidents: (filter?: IncidentFilter) => withAdmin((use, admin) => use.listIncidents(admin, filter)),
    /** Replays recorded histories against the definitions registered in this process and reports differences. */
    check: (options?: CheckOptions) => withAdmin((use, admin) => use.checkSagas(admin, options)),
    /** Lists every definition registered in this process, in every version. */
    definitions: (): readonly SagaDefinition[] => sagas.registry.all(),
    /** Draws one instance in Mermaid: over its definition if that is registered in this process, else as a timeline. */
    diagram: (id: string): Promise<string> =>
      withAdmin(async (use, admin) => {
        const { type, definitionVersion, key, status, state } = await use.showSaga(admin, id);
        const definition = admin.definitionOf(type, definitionVersion);
        const instance = { id, type, key, status, state };
        return definition === undefined ? instanceTimeline(instance) : instanceDiagram(definition, instance);
      }),
    /** Runs a failed step again. */
    retry: (id: string, options: Parameters<typeof retryStep>[2]) =>
      withHint((use, admin) => use.retryStep(admin, id, options)),
    /** Skips a failed step and continues with the next one. */
    skip: (id: string, options: Parameters<typeof skipStep>[2]) =>
      withHint((use, admin) => use.skipStep(admin, id, options)),
    /** Records the outcome of a step that was completed outside sagabox. */
    settle: (id: string, options: Parameters<typeof settleStep>[2]) =>
      withHint((use, admin) => use.settleStep(admin, id, options)),
    /** Undoes the completed steps of an instance. */
    compensate: (id: string, options: Parameters<typeof compensateSaga>[2]) =>
      withHint((use, admin) => use.compensateSaga(admin, id, options)),
    /** Cancels an instance. */
    cancel: (id: string, options: Parameters<typeof cancelSaga>[2]) =>
      withHint((use, admin) => use.cancelSaga(admin, id, options)),
    /** Delivers an event to an instance that waits for it. Calls with the same `id` take effect once; default: a new id. */
    signal: <E extends AnyEvent>(
      target: SagaTarget,
      event: E,
      data: InputOf<E>,
      options: Omit<SignalOptions, "id"> & { readonly id?: string },
    ) => {
      const id = options.id ?? sagas.engine.parts.newId();
      return withHint((use, admin) => use.signalSaga(admin, target, event, data, { ...options, id }));
    },
  };
}

function waitInTransaction(): SagaboxError {
  return new SagaboxError(
    "REQUEST_IN_TRANSACTION",
    "sagas.result must not be called inside a handler or bus.transaction(): it would wait while holding their connection " +
      "and locks. Wait after the transaction, or let the saga publish an event at its end.",
  );
}
