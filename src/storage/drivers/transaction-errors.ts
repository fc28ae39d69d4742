import { SagaboxError } from "../../errors/index.ts";
import { sqlState } from "../postgres-errors.ts";
import type { Interference } from "./transaction-watch.ts";

const LEAVE_IT = "Leave that to sagabox: return to commit, throw to roll back.";

/** `command` was to be sent through the transaction, and was not. */
export function commandRefused(command: string): SagaboxError {
  return new SagaboxError(
    "TRANSACTION_CLOSED",
    `${command} was refused: it would end the transaction that holds the effect and everything published in it. ${LEAVE_IT}`,
  );
}

/** Statements on the connection of a transaction have ended it, or used savepoints that were not seen in time. */
export function transactionInterference(interference: Interference): SagaboxError {
  switch (interference) {
    case "committed":
      return new SagaboxError(
        "TRANSACTION_COMMITTED",
        "SQL inside the transaction committed it early (COMMIT). What was written before that is durable, the rest was " +
          `rolled back, and a retry cannot tell them apart. ${LEAVE_IT}`,
      );
    case "prepared":
      return new SagaboxError(
        "TRANSACTION_COMMITTED",
        "SQL inside the transaction took it away from sagabox (PREPARE TRANSACTION). It holds its locks until it is ended: " +
          "find it in pg_prepared_xacts and run ROLLBACK PREPARED.",
      );
    case "rolled back":
      return new SagaboxError(
        "TRANSACTION_CLOSED",
        `The transaction was ended by SQL run inside it (ROLLBACK), so nothing of it was committed. ${LEAVE_IT}`,
      );
    case "savepoint":
      return new SagaboxError(
        "TRANSACTION_CLOSED",
        "A savepoint was used on the transaction's connection without `tx.query`, so messages published around it could not " +
          "follow it. The transaction was rolled back; send savepoints through `tx.query`.",
      );
  }
}

/** The server no longer has the transaction that was begun, and only it knows how that one ended. */
export function replacedByOther(): SagaboxError {
  return new SagaboxError(
    "TRANSACTION_COMMITTED",
    "The transaction was ended by SQL run inside it and another was begun. What was written before that may have been " +
      `committed. ${LEAVE_IT}`,
  );
}

export function transactionAborted(): SagaboxError {
  return new SagaboxError(
    "TRANSACTION_ABORTED",
    "The server rolled the transaction back because a statement in it had failed and the failure was swallowed. " +
      "Let SQL errors reach the caller, or wrap the statement in a savepoint.",
  );
}

export function commitUnknown(cause: unknown): SagaboxError {
  return new SagaboxError(
    "COMMIT_UNKNOWN",
    "The connection ended before the server answered COMMIT: the transaction may or may not have happened. " +
      "Look for its effect before doing it again.",
    { cause },
  );
}

/** A COMMIT that fails with a SQLSTATE of its own (a deferred constraint, a serialisation failure) is a clear no. */
export function isRollback(reason: unknown): boolean {
  const state = sqlState(reason);
  return state !== undefined && !state.startsWith("08") && !state.startsWith("57P");
}
