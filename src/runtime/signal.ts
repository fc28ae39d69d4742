/**
 * Named moments a room announces ("batch.published", "lane.leased"). Production listens to none of them;
 * a test hands in `TestSignals` and waits for the moment instead of sleeping.
 */
export interface Signals<Name extends string = string> {
  emit(name: Name, detail?: unknown): void;
}

export const silentSignals: Signals = Object.freeze({ emit: () => undefined });
