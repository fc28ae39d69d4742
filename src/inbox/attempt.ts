import { isSagaboxError, SagaboxError } from "../errors/index.ts";
import { type CancelTimer, every, withDeadline } from "../runtime/index.ts";
import {
  type CommitStatement,
  type OwnedTransaction,
  SQLSTATE,
  sqlState,
  type Statement,
} from "../storage/index.ts";
import type { AckWith } from "../transport/index.ts";
import type { InboxEngine } from "./engine.ts";
import type { OutgoingScope } from "./handler.ts";

export interface AttemptLimits {
  readonly deadlineMs: number;
  /** Aborts when the work belongs to somebody else now. */
  readonly lost?: AbortSignal | undefined;
  /** How long it waits for rows that others hold. Default: as long as it may take. */
  readonly lockTimeoutMs?: number;
  /** Where the attempt is to be found while it lasts. */
  readonly among?: Set<Attempt>;
}

// A rollback needs one answer of the server; a connection that does not give it must not keep the slot.
const ROLLBACK_MS = 5_000;

/** One transaction under one deadline: it ends in a commit the server confirmed, or leaves nothing behind. */
export class Attempt {
  readonly tx: OwnedTransaction;
  readonly scope: OutgoingScope;
  #phase: "claiming" | "handling" | "committing" = "claiming";
  #signal: AbortController | undefined;
  #ended: Error | undefined;
  #onEnd: ((reason: Error) => void) | undefined;

  constructor(tx: OwnedTransaction, scope: OutgoingScope) {
    this.tx = tx;
    this.scope = scope;
  }

  /** Made when somebody looks: most handlers never do. */
  get signal(): AbortSignal {
    if (this.#signal === undefined) {
      this.#signal = new AbortController();
      if (this.#ended !== undefined) this.#signal.abort(this.#ended);
    }
    return this.#signal.signal;
  }

  startHandling(): void {
    this.#phase = "handling";
  }

  /** Ends the work from outside, whether it listens or not: whatever it still tries fails. */
  end(reason: Error): void {
    if (this.#ended !== undefined) return;
    this.#ended = reason;
    this.#signal?.abort(reason);
    this.tx.destroy();
    this.#onEnd?.(reason);
  }

  /** Settles with the work, or rejects as soon as the attempt is ended from outside. */
  untilEnd<T>(work: Promise<T>): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#onEnd = reject;
      if (this.#ended !== undefined) reject(this.#ended);
      work.then(resolve, reject);
    });
  }

  /** Everything that is left to write, the acknowledgements and the COMMIT, in one trip where that can be. */
  async commit(last: readonly CommitStatement[]): Promise<void> {
    await this.scope.waitForPending();
    if (this.#ended !== undefined) throw this.#ended;
    this.#phase = "committing";
    const answers = await this.tx.commit([...last, ...this.scope.lastStatements()]);
    this.scope.handleCommit(answers.slice(last.length));
  }

  timeout(deadlineMs: number): SagaboxError {
    switch (this.#phase) {
      case "claiming":
        return new SagaboxError(
          "STORAGE_UNAVAILABLE",
          `The message could not be claimed within ${deadlineMs} ms: another worker holds it, or the database is slow.`,
        );
      case "handling":
        return new SagaboxError(
          "HANDLER_TIMEOUT",
          `The handler did not finish within ${deadlineMs} ms and was cut off from its transaction. ` +
            "Make it faster, listen to its signal, or raise `deadline`.",
        );
      case "committing":
        return new SagaboxError(
          "COMMIT_UNKNOWN",
          `The server did not answer COMMIT within ${deadlineMs} ms; the message is tried again and recognised if it did.`,
        );
    }
  }
}

/** Runs `work` in a transaction of its own. What fails or is late is rolled back and thrown. */
export async function attempt<T>(
  engine: InboxEngine,
  { deadlineMs, lost, among, lockTimeoutMs }: AttemptLimits,
  work: (attempt: Attempt) => Promise<T>,
): Promise<T> {
  const leave = await engine.slots.acquire();
  let current: Attempt | undefined;
  let leaveIdle: CancelTimer | undefined;
  const onLost = (): void => current?.end(deliveryLost());
  const { idleTimeoutMs, stayEveryMs } = idleLimit(deadlineMs, engine.leaseMs);
  try {
    const tx = await engine.database.begin({
      idleTimeoutMs,
      statementMs: deadlineMs,
      ...(lockTimeoutMs === undefined ? {} : { lockTimeoutMs }),
    });
    if (stayEveryMs !== null) leaveIdle = stayInside(tx, engine.sql.stay, stayEveryMs);
    current = new Attempt(tx, engine.openScope(tx));
    among?.add(current);
    if (lost?.aborted === true) throw deliveryLost();
    lost?.addEventListener("abort", onLost, { once: true });
    return await withDeadline(current.untilEnd(work(current)), deadlineMs, () =>
      tooLate(current, deadlineMs),
    );
  } catch (error) {
    // The answer to the rollback tells a broken connection from an error that only looks like one.
    if (current !== undefined) await withDeadline(current.tx.rollback(), ROLLBACK_MS, () => undefined);
    if (current?.tx.lost !== true || isSagaboxError(error)) throw error;
    throw connectionLost(current.tx.lostCause ?? error);
  } finally {
    leaveIdle?.();
    lost?.removeEventListener("abort", onLost);
    if (current !== undefined) among?.delete(current);
    leave();
  }
}

function tooLate(current: Attempt | undefined, deadlineMs: number): never {
  const late = current?.timeout(deadlineMs) ?? deliveryLost();
  current?.end(late);
  throw late;
}

/**
 * An acknowledgement that fails with a division by zero when another worker has the delivery. Only the error that
 * answers this very statement says so: handlers, triggers and deferred constraints of the user may raise the same one.
 */
export function ackStatement({ statement, params }: Omit<AckWith, "together">): CommitStatement {
  return { statement, params, explain: explainAck };
}

function explainAck(error: unknown): unknown {
  return sqlState(error) === SQLSTATE.divisionByZero ? deliveryLost() : error;
}

/** The message belongs to another member now. Nothing is settled for it here. */
export function deliveryLost(): SagaboxError {
  return new SagaboxError("OUTBOX_LEASE_LOST", "Another member took the message over while it was handled.");
}

// Whatever the handler made of it, the database's failure is not the message's.
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
