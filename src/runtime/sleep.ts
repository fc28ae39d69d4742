import { after } from "./timers.ts";

/** Waits `ms`. Resolves true when the time has passed, false as soon as `signal` aborts; never rejects. */
export function sleep(ms: number, signal?: AbortSignal): Promise<boolean> {
  if (signal?.aborted === true) return Promise.resolve(false);
  return new Promise((resolve) => {
    const cancel = after(ms, () => {
      signal?.removeEventListener("abort", onAbort);
      resolve(true);
    });
    const onAbort = (): void => {
      cancel();
      resolve(false);
    };
    signal?.addEventListener("abort", onAbort, { once: true });
  });
}

/** Spreads `ms` evenly over [ms × (1 − share), ms × (1 + share)], so that many waiters do not wake together. */
export function withJitter(ms: number, share: number, random: () => number): number {
  return ms * (1 - share + 2 * share * random());
}
