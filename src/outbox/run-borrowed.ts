import { NotInTransactionError } from "../errors/index.ts";
import type { Param, Queryable, Statement } from "../storage/index.ts";

/**
 * Runs a guarded write in a transaction that somebody else ends. A statement that nobody awaited may arrive behind their ROLLBACK,
 * where it would be a transaction of its own and stay. The server alone knows: a transaction that has written has a number.
 *
 * One trip, as without the guard. Two more where the message is the first thing that its transaction writes: there is no number
 * yet, so one is taken and the write is repeated. Whoever finds none again was not inside a transaction. Where the driver knows that it is outside of one, it is not tried: the connection may be somebody else's by now.
 */
export async function runBorrowed<R>(
  tx: Queryable,
  { statement, params }: { readonly statement: Statement; readonly params: readonly Param[] },
  takeNumber: Statement,
): Promise<R[]> {
  const first = await tx.run<R>(statement, params);
  if (first.rowCount > 0) return first.rows;
  if (tx.isOpen?.() === false) throw transactionEnded();
  await tx.run(takeNumber); // one after the other: a driver may refuse a question before the last was answered
  const second = await tx.run<R>(statement, params);
  if (second.rowCount > 0) return second.rows;
  throw transactionEnded();
}

/** Refuses what is not inside a transaction any more, for whoever writes there without a guard of its own. */
export async function assertInside(
  tx: Queryable,
  { takeNumber, hasNumber }: { readonly takeNumber: Statement; readonly hasNumber: Statement },
): Promise<void> {
  await tx.run(takeNumber);
  const { rows } = await tx.run<{ inside: boolean }>(hasNumber);
  if (rows[0]?.inside !== true) throw transactionEnded();
}

function transactionEnded(): NotInTransactionError {
  return new NotInTransactionError(
    "The transaction had ended before this reached it, so nothing was written. " +
      "Await every publish and start before COMMIT or ROLLBACK, and before the function of sql.begin returns or throws.",
  );
}
