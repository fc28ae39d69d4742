import { listenForStop } from "./stop-signals.ts";
import type { Io } from "./command.ts";

/**
 * Runs work that Ctrl-C or SIGTERM may end early: the first aborts the signal, and the work returns with what it has
 * done by then; the second ends the process at once.
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
