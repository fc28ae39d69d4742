import { parseTraceparent } from "../message/index.ts";
import { systemClock } from "../runtime/index.ts";
import {
  dropFailure,
  type Observer,
  type TelemetryContext,
  type TelemetryEvents,
  type TelemetryName,
} from "../telemetry/index.ts";

/** A step or status change of a saga, emitted by the process that made it, right after its commit. */
export type SagaNews = { readonly at: Date; readonly traceId: string | null } & (
  | ({ readonly kind: "changed" } & TelemetryEvents["saga.changed"])
  | ({ readonly kind: "step" } & TelemetryEvents["saga.step"])
);

/** Forwards saga events to the listeners of `bus.sagas.watch()`. */
export class SagaWatch implements Observer {
  readonly #listeners = new Set<(news: SagaNews) => unknown>();

  /** Adds a listener. Returns a function that removes it. */
  listen(listener: (news: SagaNews) => void): () => void {
    const own = (news: SagaNews): unknown => listener(news); // a function added twice can be removed once
    this.#listeners.add(own);
    return () => void this.#listeners.delete(own);
  }

  emit<Name extends TelemetryName>(
    name: Name,
    fields: TelemetryEvents[Name],
    context?: TelemetryContext,
  ): void {
    if (this.#listeners.size === 0 || (name !== "saga.changed" && name !== "saga.step")) return;
    const kind = name === "saga.changed" ? "changed" : "step";
    const traceId = parseTraceparent(context?.traceparent)?.traceId ?? null;
    const news = { at: new Date(systemClock.wallMs()), traceId, kind, ...fields } as unknown as SagaNews;
    for (const listener of this.#listeners) {
      try {
        dropFailure(listener(news));
      } catch {
        // A failing listener must not affect sagas or other listeners.
      }
    }
  }
}
