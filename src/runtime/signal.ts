/**
 * Named moments that a room announces ("batch.published", "lane.leased"). Production ignores them; a test
 * passes `TestSignals` and waits for a moment instead of sleeping.
 */
export interface Signals<Name extends string = string> {
  emit(name: Name, detail?: unknown): void;
}

export const silentSignals: Signals = Object.freeze({ emit: () => undefined });
