import type { Observer, TelemetryEvents, TelemetryName } from "../../src/telemetry/index.ts";

/** Records every event, and lets a test wait until an event was emitted often enough. */
export class RecordingObserver implements Observer {
  readonly emitted: { name: TelemetryName; fields: TelemetryEvents[TelemetryName] }[] = [];
  #changed: (() => void)[] = [];

  emit<Name extends TelemetryName>(name: Name, fields: TelemetryEvents[Name]): void {
    this.emitted.push({ name, fields });
    for (const wake of this.#changed.splice(0)) wake();
  }

  of<Name extends TelemetryName>(name: Name): TelemetryEvents[Name][] {
    return this.emitted
      .filter((entry) => entry.name === name)
      .map((entry) => entry.fields as TelemetryEvents[Name]);
  }

  async until<Name extends TelemetryName>(name: Name, count = 1): Promise<TelemetryEvents[Name][]> {
    for (;;) {
      const events = this.of(name);
      if (events.length >= count) return events;
      await new Promise<void>((resolve) => this.#changed.push(resolve));
    }
  }
}
