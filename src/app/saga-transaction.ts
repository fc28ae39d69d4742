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

/** Remembers what a handler's transaction publishes through, so that a saga can use it. */
export function rememberScope(tx: OwnedTransaction, scope: TransactionScope): TransactionScope {
  scopes.set(tx, scope);
  return scope;
}

/** The transaction of a handler as a saga uses it. */
export function sagaTransactionFor(tx: Sql): SagaTransaction {
  const scope = scopes.get(tx);
  if (scope === undefined)
    throw new SagaboxError("NOT_IN_TRANSACTION", "This is no transaction of a handler.");
  return fromScope(tx as OwnedTransaction, scope);
}

/** A transaction of our own for the runner of sagas. */
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
        onCommit: (told) => scope.onCommit(told),
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

/** Starts a saga in whatever transaction the caller has. */
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

// Nobody tells us of a caller's commit: what is told may be rolled back, and what is due is found by looking. A start that nobody
// awaited may arrive behind their ROLLBACK, so it makes sure before it writes the first thing.
function fromCaller(tx: unknown, send: SagaTransaction["send"], writer: OutboxWriter): SagaTransaction {
  const caller = toQueryable(tx);
  let inside: Promise<void> | undefined;
  return {
    run: async (statement, params) => {
      await (inside ??= writer.assertInside(caller));
      return caller.run(statement, params);
    },
    send,
    onCommit: (told) => told(),
    knowsCommit: false,
  };
}

function fromScope(owned: OwnedTransaction, scope: TransactionScope): SagaTransaction {
  return {
    run: (statement, params) => owned.run(statement, params),
    send: (outgoing) => scope.add(outgoing),
    onCommit: (told) => scope.onCommit(told),
    knowsCommit: !scope.hasSavepoints,
  };
}
