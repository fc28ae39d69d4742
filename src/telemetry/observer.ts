import type { TelemetryContext, TelemetryEvents, TelemetryName } from "./events.ts";

/** Receives telemetry events. `emit` must neither throw nor block. */
export interface Observer {
  emit<Name extends TelemetryName>(
    name: Name,
    fields: TelemetryEvents[Name],
    context?: TelemetryContext,
  ): void;
}

export const silentObserver: Observer = { emit: () => undefined };

/** Ignores the rejection of a sink written as an async function, which would otherwise end the process. */
export function dropFailure(result: unknown): void {
  if (result instanceof Promise) result.catch(() => undefined);
}

/** Combines observers into one that emits to each. An observer that throws does not affect the others. */
export function fanOut(observers: readonly Observer[]): Observer {
  if (observers.length === 1 && observers[0] !== undefined) return observers[0];
  return {
    emit(name, fields, context) {
      for (const observer of observers) {
        try {
          dropFailure(observer.emit(name, fields, context));
        } catch {
          // A broken sink must not stop a message.
        }
      }
    },
  };
}
