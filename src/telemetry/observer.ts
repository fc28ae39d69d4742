import type { TelemetryContext, TelemetryEvents, TelemetryName } from "./events.ts";

/** The port every room speaks to. An observer must not throw and must not wait. */
export interface Observer {
  emit<Name extends TelemetryName>(
    name: Name,
    fields: TelemetryEvents[Name],
    context?: TelemetryContext,
  ): void;
}

export const silentObserver: Observer = { emit: () => undefined };

/** A sink may be written as an async function, which TypeScript lets pass; its failure would end the process. */
export function dropFailure(told: unknown): void {
  if (told instanceof Promise) told.catch(() => undefined);
}

/** Tells each observer in turn; one that throws does not keep the others from hearing. */
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
