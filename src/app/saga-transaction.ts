import { SagaboxError } from "../errors/index.ts";
import type { BusTransaction, HandlerContext, HandlerOptions, Received, Startable } from "../inbox/index.ts";
import type { AnyEvent, GivenInput } from "../message/index.ts";
import { callable } from "../options/index.ts";
import type { Bus } from "./bus.ts";
import type { Outgoing, OutboxWriter, TransactionScope } from "../outbox/index.ts";
import type { HasDefinition, OpenTransaction, SagaTransaction, Sagas, Started } from "../saga/index.ts";
import type { Database, OwnedTransaction, Queryable } from "../storage/index.ts";
import { findOwned, findScope, handOver, type StartInScope } from "./bus-transaction.ts";

/** Adapts the transaction of a handler for the saga engine. Throws NOT_IN_TRANSACTION for any other transaction. */
export function sagaTransactionFor(tx: BusTransaction): SagaTransaction {
  const [scope, owned] = [findScope(tx), findOwned(tx)];
  if (scope === undefined || owned === undefined)
    throw new SagaboxError("NOT_IN_TRANSACTION", "This is not the transaction of a handler.");
  return fromScope(owned, scope);
}

/** Returns a function that runs work of the saga runner in a new transaction. */
export function createOpenTransaction(
  { begin, beginForUser }: { readonly begin: Database["begin"]; readonly beginForUser: Database["begin"] },
  scopeFor: (tx: OwnedTransaction) => TransactionScope,
  start: StartInScope,
): OpenTransaction {
  return async (work, { forUser = false, ...limits } = {}) => {
    const tx = await (forUser ? beginForUser : begin)(limits);
    const scope = scopeFor(tx);
    try {
      const result = await work({
        run: (statement, params) => tx.run(statement, params),
        forUser: () => handOver(tx, scope, start),
        destroy: () => tx.destroy(),
        send: (outgoing) => scope.add(outgoing),
        onCommit: (listener) => scope.onCommit(listener),
        knowsCommit: tx.native === undefined,
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

/** Starts a saga in a transaction of ours. */
export function startInScope(
  sagas: Sagas,
  tx: OwnedTransaction,
  scope: TransactionScope,
  saga: object,
  input: unknown,
): Promise<Started> {
  return scope.during(async () => sagas.start(fromScope(tx, scope), saga as HasDefinition, input));
}

interface StartParts {
  readonly sagas: Sagas;
  readonly writer: OutboxWriter;
  readonly join: (tx: unknown) => Queryable;
}

/** Starts a saga in a `BusTransaction` or in a transaction of the caller's database client. */
export async function startSaga(
  { sagas, writer, join }: StartParts,
  tx: unknown,
  write: (outgoing: Outgoing) => Promise<unknown>,
  saga: HasDefinition,
  input: unknown,
): Promise<Started> {
  const [scope, owned] = [findScope(tx), findOwned(tx)];
  if (scope !== undefined && owned !== undefined) return startInScope(sagas, owned, scope, saga, input);
  return sagas.start(fromCaller(join(tx), write, writer), saga, input);
}

/** Makes the input of a saga from the event that starts it. Undefined if the event starts none. */
export type StartInput<E extends AnyEvent, I, Tx = BusTransaction> = (
  message: Received<E>,
  context: HandlerContext<Tx>,
) => GivenInput<I> | undefined | Promise<GivenInput<I> | undefined>;

/** Options of `bus.startOn()`: those of a handler, without `batch`. */
export interface StartOnOptions extends Omit<HandlerOptions, "consumer" | "batch"> {
  /** The name of the consumer, by which duplicates are found. Default `start-` and the name of the saga. */
  readonly consumer?: string;
}

/** Registers the saga and a handler that starts it. */
export function registerStart<E extends AnyEvent, I, Tx>(
  bus: Pick<Bus<Tx>, "on" | "register">,
  event: E,
  saga: Startable<I>,
  input: StartInput<E, I, Tx>,
  options: StartOnOptions,
): void {
  callable("The third argument of bus.startOn", input);
  bus.register(saga as unknown as HasDefinition);
  const { name } = (saga as unknown as HasDefinition).definition;
  const start = async (message: Received<E>, context: HandlerContext<Tx>) => {
    const made = await input(message, context);
    return made === undefined ? undefined : context.start(saga, made);
  };
  bus.on(event as AnyEvent, { consumer: `start-${name}`, ...options }, async (message, context) => {
    const started = await start(message as Received<E>, context);
    return started && { ...started };
  });
}

// The commit of a caller's transaction is not visible here: listeners run early, and polling finds the due instance. A start
// that was not awaited may run after the caller's ROLLBACK, so the first write checks that the transaction is open.
function fromCaller(caller: Queryable, send: SagaTransaction["send"], writer: OutboxWriter): SagaTransaction {
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
    knowsCommit: !scope.hasSavepoints && owned.native === undefined,
  };
}
