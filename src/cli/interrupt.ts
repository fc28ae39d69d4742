import { listenForStop } from "./stop-signals.ts";
import type { Io } from "./command.ts";

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
