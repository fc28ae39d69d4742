import type { Observer, TelemetryEvents, TelemetryName } from "../../src/telemetry/index.ts";

/** Hears everything, and lets a test wait until something was told often enough. */
export class RecordingObserver implements Observer {
  readonly told: { name: TelemetryName; fields: TelemetryEvents[TelemetryName] }[] = [];
  #changed: (() => void)[] = [];

  emit<Name extends TelemetryName>(name: Name, fields: TelemetryEvents[Name]): void {
    this.told.push({ name, fields });
    for (const wake of this.#changed.splice(0)) wake();
  }

  of<Name extends TelemetryName>(name: Name): TelemetryEvents[Name][] {
    return this.told
      .filter((entry) => entry.name === name)
      .map((entry) => entry.fields as TelemetryEvents[Name]);
  }

  async until<Name extends TelemetryName>(name: Name, count = 1): Promise<TelemetryEvents[Name][]> {
    for (;;) {
      const heard = this.of(name);
      if (heard.length >= count) return heard;
      await new Promise<void>((resolve) => this.#changed.push(resolve));
    }
  }
}
