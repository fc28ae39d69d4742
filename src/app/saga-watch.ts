import { parseTraceparent } from "../message/index.ts";
import { systemClock } from "../runtime/index.ts";
import {
  dropFailure,
  type Observer,
  type TelemetryContext,
  type TelemetryEvents,
  type TelemetryName,
} from "../telemetry/index.ts";

/** Something that became of a saga, told by the process that did it, right after it was committed. */
export type SagaNews = { readonly at: Date; readonly traceId: string | null } & (
  | ({ readonly kind: "changed" } & TelemetryEvents["saga.changed"])
  | ({ readonly kind: "step" } & TelemetryEvents["saga.step"])
);

/** Hands on what sagas tell, to whoever listens. */
export class SagaWatch implements Observer {
  readonly #listeners = new Set<(news: SagaNews) => unknown>();

  /** Returns what ends it. */
  listen(hear: (news: SagaNews) => void): () => void {
    const own = (news: SagaNews): unknown => hear(news); // one function may listen twice, and stop once
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
    for (const hear of this.#listeners) {
      try {
        dropFailure(hear(news));
      } catch {
        // A listener that fails must stop neither a saga nor the next listener.
      }
    }
  }
}
