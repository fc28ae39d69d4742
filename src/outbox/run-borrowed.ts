import { NotInTransactionError } from "../errors/index.ts";
import type { Param, Queryable, Statement } from "../storage/index.ts";

/**
 * Runs a guarded write in a transaction that somebody else ends. A statement that nobody awaited may arrive behind their ROLLBACK,
 * where it would be a transaction of its own and stay. The server alone knows: a transaction that has written has a number.
 *
 * One trip, as without the guard. Two more where the message is the first thing that its transaction writes: there is no number
 * yet, so one is taken and the write is repeated. Whoever finds none again was not inside a transaction.
 */
export async function runBorrowed<R>(
  tx: Queryable,
  { statement, params }: { readonly statement: Statement; readonly params: readonly Param[] },
  takeNumber: Statement,
): Promise<R[]> {
  const first = await tx.run<R>(statement, params);
  if (first.rowCount > 0) return first.rows;
  await tx.run(takeNumber);
  const second = await tx.run<R>(statement, params);
  if (second.rowCount > 0) return second.rows;
  throw new NotInTransactionError(
    "The transaction had ended before the message reached it, so nothing was written. " +
      "Await every publish before COMMIT or ROLLBACK, and before the function of sql.begin returns or throws.",
  );
}
