import { systemClock, type Clock } from "../runtime/index.ts";

export type StopSignal = "SIGTERM" | "SIGINT";

/** The part of `process` that signals come from. */
export interface SignalSource {
  on(signal: StopSignal, hear: () => void): unknown;
  removeListener(signal: StopSignal, hear: () => void): unknown;
}

export interface StopSignals {
  /** Resolves with the first signal. */
  readonly requested: Promise<StopSignal>;
  dispose(): void;
}

const EXIT_CODES = { SIGTERM: 143, SIGINT: 130 } as const;

// Ctrl-C reaches every process of the terminal, and a wrapper such as npm passes it on once more.
const SAME_KEY_PRESS_MS = 250;

/** The first signal asks for a clean stop, the second one ends the process at once. */
export function listenForStop(
  source: SignalSource,
  exit: (code: number) => void,
  clock: Clock = systemClock,
): StopSignals {
  let first: { readonly signal: StopSignal; readonly atMs: number } | undefined;
  let resolve: (signal: StopSignal) => void = () => undefined;
  const requested = new Promise<StopSignal>((settle) => {
    resolve = settle;
  });
  const onSignal = (signal: StopSignal) => (): void => {
    const nowMs = clock.monotonicMs();
    if (first === undefined) {
      first = { signal, atMs: nowMs };
      resolve(signal);
      return;
    }
    const echo = signal === "SIGINT" && first.signal === "SIGINT" && nowMs - first.atMs < SAME_KEY_PRESS_MS;
    if (!echo) exit(EXIT_CODES[signal]);
  };
  const hearing = { SIGTERM: onSignal("SIGTERM"), SIGINT: onSignal("SIGINT") };
  source.on("SIGTERM", hearing.SIGTERM);
  source.on("SIGINT", hearing.SIGINT);
  return {
    requested,
    dispose: () => {
      source.removeListener("SIGTERM", hearing.SIGTERM);
      source.removeListener("SIGINT", hearing.SIGINT);
    },
  };
}
