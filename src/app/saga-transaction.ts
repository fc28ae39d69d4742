import { SagaboxError } from "../errors/index.ts";
import type { Outgoing, OutboxWriter, TransactionScope } from "../outbox/index.ts";
import type { OpenTransaction, SagaTransaction, Sagas, Started } from "../saga/index.ts";
import {
  toQueryable,
  type CallerTransaction,
  type Database,
  type OwnedTransaction,
  type Sql,
} from "../storage/index.ts";
import { findOwned, findScope, type BusTransaction } from "./bus-transaction.ts";

const scopes = new WeakMap<object, TransactionScope>();

/** Stores the scope of a handler's transaction for `sagaTransactionFor`. */
export function rememberScope(tx: OwnedTransaction, scope: TransactionScope): TransactionScope {
  scopes.set(tx, scope);
  return scope;
}

/** Adapts the transaction of a handler for the saga engine. Throws NOT_IN_TRANSACTION for any other transaction. */
export function sagaTransactionFor(tx: Sql): SagaTransaction {
  const scope = scopes.get(tx);
  if (scope === undefined)
    throw new SagaboxError("NOT_IN_TRANSACTION", "This is not the transaction of a handler.");
  return fromScope(tx as OwnedTransaction, scope);
}

/** Returns a function that runs work of the saga runner in a new transaction. */
export function createOpenTransaction(
  database: Database,
  scopeFor: (tx: OwnedTransaction) => TransactionScope,
): OpenTransaction {
  return async (work, limits) => {
    const tx = await database.begin(limits);
    const scope = scopeFor(tx);
    try {
      const result = await work({
        run: (statement, params) => tx.run(statement, params),
        query: (text, params) => tx.query(text, params),
        destroy: () => tx.destroy(),
        send: (outgoing) => scope.add(outgoing),
        onCommit: (listener) => scope.onCommit(listener),
        knowsCommit: true,
      });
      await scope.waitForPending();
      scope.handleCommit(await tx.commit(scope.lastStatements(), scope.afterword()));
      return result;
    } catch (error) {
      await tx.rollback();
      throw error;
    }
  };
}

/** Starts a saga in a `BusTransaction` or in a transaction of the caller's database client. */
export async function startSaga(
  { sagas, writer }: { readonly sagas: Sagas; readonly writer: OutboxWriter },
  tx: CallerTransaction | BusTransaction,
  write: (outgoing: Outgoing) => Promise<unknown>,
  saga: Parameters<Sagas["start"]>[1],
  input: unknown,
): Promise<Started> {
  const [scope, owned] = [findScope(tx), findOwned(tx)];
  const known = scope !== undefined && owned !== undefined;
  const transaction = known ? fromScope(owned, scope) : fromCaller(tx, write, writer);
  const start = async (): Promise<Started> => sagas.start(transaction, saga, input);
  return scope === undefined ? start() : scope.during(start);
}

// The commit of a caller's transaction is not visible here: listeners run early, and polling finds the due instance. A start
// that was not awaited may run after the caller's ROLLBACK, so the first write checks that the transaction is open.
function fromCaller(tx: unknown, send: SagaTransaction["send"], writer: OutboxWriter): SagaTransaction {
  const caller = toQueryable(tx);
  let inside: Promise<void> | undefined;
  return {
    run: async (statement, params) => {
      await (inside ??= writer.assertInside(caller));
      return caller.run(statement, params);
    },
    send,
    onCommit: (listener) => listener(),
    knowsCommit: false,
  };
}

function fromScope(owned: OwnedTransaction, scope: TransactionScope): SagaTransaction {
  return {
    run: (statement, params) => owned.run(statement, params),
    send: (outgoing) => scope.add(outgoing),
    onCommit: (listener) => scope.onCommit(listener),
    knowsCommit: !scope.hasSavepoints,
  };
}
