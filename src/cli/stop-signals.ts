import { type Clock, systemClock } from "../runtime/index.ts";
import type { Io } from "./command.ts";

export type StopSignal = "SIGTERM" | "SIGINT";

/** The part of `process` that delivers signals. */
export interface SignalSource {
  on(signal: StopSignal, listener: () => void): unknown;
  removeListener(signal: StopSignal, listener: () => void): unknown;
}

export interface StopSignals {
  /** Resolves with the first signal. */
  readonly requested: Promise<StopSignal>;
  dispose(): void;
}

const EXIT_CODES = { SIGTERM: 143, SIGINT: 130 } as const;

// Ctrl-C reaches every process of the terminal, and a wrapper such as npm forwards it a second time.
const SAME_KEY_PRESS_MS = 250;

/** The first signal requests a clean stop, the second one calls `exit` immediately. */
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
  const listeners = { SIGTERM: onSignal("SIGTERM"), SIGINT: onSignal("SIGINT") };
  source.on("SIGTERM", listeners.SIGTERM);
  source.on("SIGINT", listeners.SIGINT);
  return {
    requested,
    dispose: () => {
      source.removeListener("SIGTERM", listeners.SIGTERM);
      source.removeListener("SIGINT", listeners.SIGINT);
    },
  };
}

/**
 * Runs work that Ctrl-C or SIGTERM may stop early. The first signal aborts `signal`, and the work returns its partial
 * result; the second exits the process immediately.
 */
export async function runInterruptible<T>(io: Io, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
  const stop = listenForStop(io.signals, (code) => io.exit(code));
  const controller = new AbortController();
  void stop.requested.then(() => controller.abort());
  try {
    return await work(controller.signal);
  } finally {
    stop.dispose();
  }
}
