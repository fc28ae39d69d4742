import { findShutdownMs, type RunOptions } from "../app/index.ts";
import { SagaboxError } from "../errors/index.ts";
import { every, systemClock, withDeadline } from "../runtime/index.ts";
import type { Io } from "./command.ts";
import type { RunnableBus } from "./load-app.ts";
import type { StopSignals } from "./stop-signals.ts";

export interface RunAppOptions extends RunOptions {
  /** For a bus that does not say how long its stop may take. */
  readonly shutdownMs: number;
}

// The bus keeps to its own time and can say what was left; only one that does not is cut off.
const MARGIN_MS = 1_000;

/** Runs the bus until a signal asks to stop. Resolves when everything begun has ended; rejects when it has not. */
export async function runApp(
  load: () => Promise<RunnableBus>,
  { shutdownMs: otherwiseMs, ...options }: RunAppOptions,
  { stop, io }: { readonly stop: StopSignals; readonly io: Io },
): Promise<void> {
  const cancel = every(60_000, () => undefined); // nothing else may keep the process alive yet
  try {
    const bus = await Promise.race([load(), stop.requested]);
    if (typeof bus === "string") return;
    const shutdownMs = findShutdownMs(bus) ?? otherwiseMs;
    const running = bus.run(options);
    const failed = running.then(() => stop.requested);
    try {
      const signal = await Promise.race([stop.requested, failed]);
      io.err(`${signal} received, finishing what was begun.`);
    } catch (error) {
      await stopWithin(bus, shutdownMs).catch(() => undefined);
      throw error;
    }
    failed.catch(() => undefined); // whatever the stop cut short has been told by the bus itself
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
      `Not everything had ended after ${Math.round(systemClock.monotonicMs() - began)} ms. What was left is safe and will be ` +
        "taken over; raise SAGABOX_SHUTDOWN_TIMEOUT, or `shutdownTimeout` where your code sets it, if this happens often.",
    );
  }
  throw new SagaboxError(
    "SHUTDOWN_INCOMPLETE",
    "Not everything could be ended as it should, mostly because the database or the broker is not there; the log says what. " +
      "What was left is safe: others take it over when the lease of this process ends.",
  );
}

function hasFlag(result: unknown, name: "clean" | "timedOut", value: boolean): boolean {
  return typeof result === "object" && result !== null && (result as Record<string, unknown>)[name] === value;
}
