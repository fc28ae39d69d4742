import { hasMethod, isObject } from "./library-shape.ts";
import type { Library, LibraryClient, TransactionAdapter } from "./library.ts";

/** A transaction of Knex, also one that Objection uses. The root `knex` has no `executionPromise`. */
export interface KnexTx {
  raw: (...args: never[]) => unknown;
  isCompleted(): boolean;
  readonly executionPromise: Promise<unknown>;
}

interface KnexRoot<Tx> {
  transaction(
    work: (trx: Tx) => Promise<unknown>,
    config?: { isolationLevel?: "read committed" | "repeatable read" | "serializable" },
  ): Promise<unknown>;
}

interface KnexClient {
  readonly client?: { acquireConnection?: () => Promise<unknown> };
}

/** A nested transaction is a savepoint: only the end of the outermost one commits. */
function outermost(tx: object): object {
  const { parentTransaction } = tx as { readonly parentTransaction?: object };
  return parentTransaction === undefined ? tx : outermost(parentTransaction);
}

export const knex: Library = {
  name: "Knex",
  call: "knex.transaction(async (trx) => …)",
  isTransaction: (value) =>
    hasMethod(value, "raw") && (value as { isTransaction?: unknown }).isTransaction === true,
  isRoot: (value) =>
    hasMethod(value, "raw") && hasMethod(value, "transaction") && hasMethod(value, "initialize"),
  // Inside a transaction the client has one connection, which this returns without taking another.
  client: async (tx) => {
    const connection = await (tx as KnexClient).client?.acquireConnection?.();
    return isObject(connection) && hasMethod(connection, "getTransactionStatus")
      ? (connection as unknown as LibraryClient)
      : undefined;
  },
  onEnd: (tx, listener) => {
    const { executionPromise } = outermost(tx) as Partial<KnexTx>;
    executionPromise?.then(listener, listener);
    return executionPromise !== undefined;
  },
  query: () => Promise.reject(new TypeError('sagabox works with Knex on the client "pg" only.')),
};

/** Lets handlers, `tx` steps and `bus.transaction()` use Knex or Objection: `tx` is then a Knex `Transaction`. */
export function knexTransactions<Tx extends object>(root: KnexRoot<Tx>): TransactionAdapter<Tx> {
  return {
    name: knex.name,
    client: (tx) => knex.client?.(tx),
    query: (tx, text, params) => knex.query(tx, text, params),
    run: (work, { isolation }) => root.transaction(work, { isolationLevel: isolation }),
  };
}
