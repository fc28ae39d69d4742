import { errorText } from "../errors/index.ts";
import { random, sleep, withJitter } from "../runtime/index.ts";
import type { Observer } from "../telemetry/index.ts";

const FIRST_WAIT_MS = 50;
const MAX_WAIT_MS = 5_000;

/**
 * Does what must be done in the end, however long the database or the broker is away: tries again after growing
 * waits. False when `signal` said that it is somebody else's business now.
 */
export async function persist(
  observer: Observer,
  doing: string,
  signal: AbortSignal,
  action: () => Promise<unknown> | undefined,
): Promise<boolean> {
  for (let failures = 0; !signal.aborted; failures++) {
    try {
      await action();
      return true;
    } catch (error) {
      const waitMs = Math.min(MAX_WAIT_MS, FIRST_WAIT_MS * 2 ** Math.min(failures, 20));
      const retryInMs = Math.round(withJitter(waitMs, 0.3, random));
      observer.emit("storage.failed", { doing, error: errorText(error).slice(0, 500), retryInMs });
      await sleep(retryInMs, signal);
    }
  }
  return false;
}
