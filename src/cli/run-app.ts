import { findShutdownMs, type RunOptions } from "../app/index.ts";
import { SagaboxError } from "../errors/index.ts";
import { every, systemClock, withDeadline } from "../runtime/index.ts";
import type { Io } from "./command.ts";
import type { RunnableBus } from "./load-app.ts";
import type { StopSignals } from "./stop-signals.ts";

export interface RunAppOptions extends RunOptions {
  /** Shutdown timeout for a bus that does not report its own. */
  readonly shutdownMs: number;
}

// The bus enforces its own timeout and reports what was left. The CLI gives up only if the bus exceeds it by this margin.
const MARGIN_MS = 1_000;

/** Runs the bus until a stop signal. Resolves after a clean stop; throws SHUTDOWN_TIMEOUT or SHUTDOWN_INCOMPLETE otherwise. */
export async function runApp(
  load: () => Promise<RunnableBus>,
  { shutdownMs: defaultShutdownMs, ...options }: RunAppOptions,
  { stop, io }: { readonly stop: StopSignals; readonly io: Io },
): Promise<void> {
  const cancel = every(60_000, () => undefined); // keeps the process alive while the app loads
  try {
    const bus = await Promise.race([load(), stop.requested]);
    if (typeof bus === "string") return;
    const shutdownMs = findShutdownMs(bus) ?? defaultShutdownMs;
    const running = bus.run(options);
    const failed = running.then(() => stop.requested);
    try {
      const signal = await Promise.race([stop.requested, failed]);
      io.err(`${signal} received, finishing work in flight.`);
    } catch (error) {
      await stopWithin(bus, shutdownMs).catch(() => undefined);
      throw error;
    }
    failed.catch(() => undefined); // the bus has reported what its stop interrupted
    await stopWithin(bus, shutdownMs);
  } finally {
    cancel();
  }
}

async function stopWithin(bus: RunnableBus, shutdownMs: number): Promise<void> {
  const began = systemClock.monotonicMs();
  const result = await withDeadline(bus.stop(), shutdownMs + MARGIN_MS, () => ({
    clean: false,
    timedOut: true,
  }));
  if (!hasFlag(result, "clean", false)) return;
  if (hasFlag(result, "timedOut", true)) {
    throw new SagaboxError(
      "SHUTDOWN_TIMEOUT",
      `The worker had not stopped after ${Math.round(systemClock.monotonicMs() - began)} ms. Unfinished work is safe, and another ` +
        "worker takes it over; raise SAGABOX_SHUTDOWN_TIMEOUT, or `shutdownTimeout` where your code sets it, if this happens often.",
    );
  }
  throw new SagaboxError(
    "SHUTDOWN_INCOMPLETE",
    "The worker did not stop cleanly, usually because the database or the broker is unreachable; see the log. " +
      "Unfinished work is safe: other workers take it over when the lease of this process expires.",
  );
}

function hasFlag(result: unknown, name: "clean" | "timedOut", value: boolean): boolean {
  return typeof result === "object" && result !== null && (result as Record<string, unknown>)[name] === value;
}
