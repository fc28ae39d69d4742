import { errorText } from "../errors/index.ts";
import { retryWithBackoff } from "../runtime/index.ts";
import type { Observer } from "../telemetry/index.ts";

const BACKOFF = { firstMs: 50, maxMs: 5_000 };

/**
 * Runs `action` until it succeeds, however long the database or broker is unavailable. Returns false if `signal`
 * aborted first.
 */
export async function persist(
  observer: Observer,
  doing: string,
  signal: AbortSignal,
  action: () => Promise<unknown> | undefined,
): Promise<boolean> {
  if (signal.aborted) return false;
  const done = await retryWithBackoff(async () => [await action()], {
    backoff: BACKOFF,
    signal,
    onFailure: ({ error, retryInMs }) =>
      observer.emit("storage.failed", { doing, error: errorText(error).slice(0, 500), retryInMs }),
  });
  return done !== undefined;
}
