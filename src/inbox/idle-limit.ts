import { every, type CancelTimer } from "../runtime/index.ts";
import type { OwnedTransaction, Statement } from "../storage/index.ts";

export interface IdleLimit {
  /** The server ends a session that sits idle in its transaction for longer. */
  readonly idleTimeoutMs: number;
  /** How often a living process must say that it is still there; null where the limit is never reached alive. */
  readonly stayEveryMs: number | null;
}

/**
 * A process that is stopped must not keep its rows locked after others have taken its work over, so the limit is never
 * more than the lease. A handler may wait longer than that for something else while its lease is renewed.
 */
export function idleLimit(deadlineMs: number, leaseMs: number): IdleLimit {
  if (deadlineMs <= leaseMs) return { idleTimeoutMs: deadlineMs, stayEveryMs: null };
  return { idleTimeoutMs: leaseMs, stayEveryMs: leaseMs / 4 };
}

/** Runs an empty statement now and then, so that only a process that cannot do that counts as idle. */
export function stayInside(
  tx: Pick<OwnedTransaction, "open" | "run">,
  statement: Statement,
  everyMs: number,
): CancelTimer {
  let isAsking = false;
  const stay = async (): Promise<void> => {
    if (isAsking || !tx.open) return;
    isAsking = true;
    // A failure is not ours to tell: whatever the handler does next meets it.
    await tx.run(statement).catch(() => undefined);
    isAsking = false;
  };
  return every(everyMs, () => void stay(), { unref: true });
}
