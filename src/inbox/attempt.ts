import { errorText, isSagaboxError, SagaboxError } from "../errors/index.ts";
import { type CancelTimer, every, retryWithBackoff, withDeadline } from "../runtime/index.ts";
import {
  type CommitStatement,
  type OwnedTransaction,
  SQLSTATE,
  sqlState,
  type Statement,
} from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type { AckWith } from "../transport/index.ts";
import type { InboxEngine } from "./engine.ts";
import type { OutgoingScope } from "./handler.ts";

export interface AttemptLimits {
  readonly deadlineMs: number;
  /** Aborts when another worker took the message over. */
  readonly lost?: AbortSignal | undefined;
  /** How long a statement waits for a row lock. Default: until the deadline. */
  readonly lockTimeoutMs?: number;
  /** True for the transaction of a handler, which the user's library may open. */
  readonly forHandler?: boolean;
  /** Contains the attempt while it runs, so that a stop can abort it. */
  readonly openAttempts?: Set<Attempt>;
}

// Bounds the rollback, so that an unresponsive connection does not keep its permit.
const ROLLBACK_MS = 5_000;

/** One handler transaction with a deadline. It ends in a confirmed commit, or is rolled back. */
export class Attempt {
  readonly tx: OwnedTransaction;
  readonly scope: OutgoingScope;
  #phase: "claiming" | "handling" | "committing" = "claiming";
  #signal: AbortController | undefined;
  #abortReason: Error | undefined;
  #onAbort: ((reason: Error) => void) | undefined;

  constructor(tx: OwnedTransaction, scope: OutgoingScope) {
    this.tx = tx;
    this.scope = scope;
  }

  /** Created on first use, because most handlers never read it. */
  get signal(): AbortSignal {
    if (this.#signal === undefined) {
      this.#signal = new AbortController();
      if (this.#abortReason !== undefined) this.#signal.abort(this.#abortReason);
    }
    return this.#signal.signal;
  }

  startHandling(): void {
    this.#phase = "handling";
  }

  /** Aborts the attempt and destroys its connection: every later query of the handler fails. */
  abort(reason: Error): void {
    if (this.#abortReason !== undefined) return;
    this.#abortReason = reason;
    this.#signal?.abort(reason);
    this.tx.destroy();
    this.#onAbort?.(reason);
  }

  /** Settles with the work, or rejects as soon as the attempt is aborted. */
  untilAborted<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#onAbort = reject;
      if (this.#abortReason !== undefined) reject(this.#abortReason);
      work.then(resolve, reject);
    });
  }

  /** Commits. Pending writes, the given statements and COMMIT are sent in one round trip where possible. */
  async commit(last: readonly CommitStatement[]): Promise<void> {
    await this.scope.waitForPending();
    if (this.#abortReason !== undefined) throw this.#abortReason;
    this.#phase = "committing";
    const answers = await this.tx.commit([...last, ...this.scope.lastStatements()]);
    this.scope.handleCommit(answers.slice(last.length));
  }

  timeoutError(deadlineMs: number): SagaboxError {
    switch (this.#phase) {
      case "claiming":
        return new SagaboxError(
          "STORAGE_UNAVAILABLE",
          `The message could not be claimed within ${deadlineMs} ms: another worker has locked it, or the database is slow.`,
        );
      case "handling":
        return new SagaboxError(
          "HANDLER_TIMEOUT",
          `The handler did not finish within ${deadlineMs} ms and was cut off from its transaction. ` +
            "Make it faster, observe its `signal`, or raise `deadline`.",
        );
      case "committing":
        return new SagaboxError(
          "COMMIT_UNKNOWN",
          `The server did not answer COMMIT within ${deadlineMs} ms. The message is retried; if it was committed, the retry is a duplicate.`,
        );
    }
  }
}

/** Runs `work` in its own transaction. If it fails or exceeds the deadline, it is rolled back and the error is thrown. */
export async function runAttempt<T>(
  engine: InboxEngine,
  { deadlineMs, lost, openAttempts, lockTimeoutMs, forHandler }: AttemptLimits,
  work: (attempt: Attempt) => Promise<T>,
): Promise<T> {
  const releasePermit = await engine.permits.acquire();
  let current: Attempt | undefined;
  let stopKeepingActive: CancelTimer | undefined;
  const onLost = (): void => current?.abort(deliveryLost());
  const { idleTimeoutMs, keepActiveEveryMs } = idleLimit(deadlineMs, engine.leaseMs);
  try {
    const tx = await (forHandler === true ? engine : engine.database).begin({
      idleTimeoutMs,
      statementMs: deadlineMs,
      ...(lockTimeoutMs === undefined ? {} : { lockTimeoutMs }),
    });
    if (keepActiveEveryMs !== null)
      stopKeepingActive = keepSessionActive(tx, engine.sql.stay, keepActiveEveryMs);
    current = new Attempt(tx, engine.openScope(tx));
    openAttempts?.add(current);
    if (lost?.aborted === true) throw deliveryLost();
    lost?.addEventListener("abort", onLost, { once: true });
    return await withDeadline(current.untilAborted(work(current)), deadlineMs, () =>
      abortLate(current, deadlineMs),
    );
  } catch (error) {
    // Only the rollback shows whether the connection is broken: a handler can throw an error that looks like it.
    if (current !== undefined) await withDeadline(current.tx.rollback(), ROLLBACK_MS, () => undefined);
    if (current?.tx.lost !== true || isSagaboxError(error)) throw error;
    throw connectionLost(current.tx.lostCause ?? error);
  } finally {
    stopKeepingActive?.();
    lost?.removeEventListener("abort", onLost);
    if (current !== undefined) openAttempts?.delete(current);
    releasePermit();
  }
}

function abortLate(current: Attempt | undefined, deadlineMs: number): never {
  const late = current?.timeoutError(deadlineMs) ?? deliveryLost();
  current?.abort(late);
  throw late;
}

/**
 * An acknowledgement that fails with division_by_zero if another worker has the delivery. Only the error of this
 * statement is read that way, because user code can raise the same SQLSTATE.
 */
export function ackStatement({ statement, params }: Omit<AckWith, "together">): CommitStatement {
  return { statement, params, explain: explainAck };
}

function explainAck(error: unknown): unknown {
  return sqlState(error) === SQLSTATE.divisionByZero ? deliveryLost() : error;
}

/** The error for a delivery that another worker took over. It must not be settled by this worker. */
export function deliveryLost(): SagaboxError {
  return new SagaboxError("OUTBOX_LEASE_LOST", "Another worker took the message over while it was handled.");
}

// A lost connection replaces the handler's error, so that it does not count as an attempt.
function connectionLost(cause: unknown): SagaboxError {
  return new SagaboxError(
    "STORAGE_UNAVAILABLE",
    "The database connection was lost while the message was handled.",
    {
      cause,
    },
  );
}

interface IdleLimit {
  /** The server ends a session that is idle in its transaction for longer. */
  readonly idleTimeoutMs: number;
  /** How often an empty statement must keep the session active. Null if the deadline comes before the idle timeout. */
  readonly keepActiveEveryMs: number | null;
}

/**
 * Limits how long a session may be idle in its transaction. A frozen process must release its row locks once its lease
 * has expired, so the limit is at most the lease. A live process keeps longer handlers active with empty statements.
 */
export function idleLimit(deadlineMs: number, leaseMs: number): IdleLimit {
  if (deadlineMs <= leaseMs) return { idleTimeoutMs: deadlineMs, keepActiveEveryMs: null };
  return { idleTimeoutMs: leaseMs, keepActiveEveryMs: leaseMs / 4 };
}

/** Runs an empty statement at an interval, so that the server does not end the session of a live process. */
export function keepSessionActive(
  tx: Pick<OwnedTransaction, "open" | "run">,
  statement: Statement,
  everyMs: number,
): CancelTimer {
  let isRunning = false;
  const keepActive = async (): Promise<void> => {
    if (isRunning || !tx.open) return;
    isRunning = true;
    // A failure is not reported here: the handler's next query fails as well.
    await tx.run(statement).catch(() => undefined);
    isRunning = false;
  };
  return every(everyMs, () => void keepActive(), { unref: true });
}

const BACKOFF = { firstMs: 50, maxMs: 5_000 };

/**
 * Retries an action with exponential backoff until it succeeds, however long the database or the broker is unavailable.
 * Resolves with false if the signal aborts first.
 */
export async function retryUntilDone(
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
