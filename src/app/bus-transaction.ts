import { AsyncLocalStorage } from "node:async_hooks";
import { SagaboxError } from "../errors/index.ts";
import type { BusTransaction } from "../inbox/index.ts";
import type { AnyContract, InputOf, PublishOptions } from "../message/index.ts";
import { callable, oneOf, rejectUnknownKeys, wholeNumber } from "../options/index.ts";
import type { Admission, Compose, Outgoing, OutboxWriter, TransactionScope } from "../outbox/index.ts";
import {
  CALLER_STATEMENT_MS,
  type OwnedTransaction,
  type Queryable,
  type TransactionOptions,
} from "../storage/index.ts";

const inside = new AsyncLocalStorage<true>();

/** Runs `work` so that `isInsideTransaction()` returns true in it, also after an await. */
export function runInsideTransaction<T>(work: () => T): T {
  return inside.run(true, work);
}

export function isInsideTransaction(): boolean {
  return inside.getStore() === true;
}

/** Starts a saga in a transaction of ours. */
export type StartInScope = (
  tx: OwnedTransaction,
  scope: TransactionScope,
  ...saga: Parameters<BusTransaction["start"]>
) => ReturnType<BusTransaction["start"]>;

let readScope: (tx: object) => TransactionScope | undefined;
let readOwned: (tx: object) => OwnedTransaction | undefined;

/** Hides the owned transaction and its scope from the user's code, which must not end the transaction. */
class HandedTransaction implements BusTransaction {
  readonly query: BusTransaction["query"];
  readonly publish: BusTransaction["publish"];
  readonly start: BusTransaction["start"];
  readonly #tx: OwnedTransaction;
  readonly #scope: TransactionScope;

  constructor(tx: OwnedTransaction, scope: TransactionScope, start: StartInScope) {
    this.#tx = tx;
    this.#scope = scope;
    this.query = (text, params) => tx.query(text, params);
    this.publish = (contract, data, options) => scope.publish(contract, data, options);
    this.start = (saga, input) => start(tx, scope, saga, input);
  }

  // Not static methods, because `tx.constructor` would make those reachable.
  static {
    readScope = (tx) => (#scope in tx ? tx.#scope : undefined);
    readOwned = (tx) => (#tx in tx ? tx.#tx : undefined);
  }
}

interface OwnedScope {
  readonly owned: OwnedTransaction;
  readonly scope: TransactionScope;
}

/** Transactions that a library of the user opened for sagabox. */
const natives = new WeakMap<object, OwnedScope>();

/** Returns the scope of a transaction that sagabox commits, or undefined for any other value. */
export function findScope(tx: unknown): TransactionScope | undefined {
  if (!isObject(tx)) return undefined;
  return natives.get(tx)?.scope ?? readScope(tx);
}

/** Returns the database transaction behind a transaction that sagabox commits, or undefined for any other value. */
export function findOwned(tx: unknown): OwnedTransaction | undefined {
  if (!isObject(tx)) return undefined;
  return natives.get(tx)?.owned ?? readOwned(tx);
}

function isObject(value: unknown): value is object {
  return (typeof value === "object" && value !== null) || typeof value === "function";
}

/** Publishes and starts sagas in a transaction of the user's library. */
export interface TransactionTools {
  readonly publish: BusTransaction["publish"];
  readonly start: BusTransaction["start"];
}

/** What the user's code gets: the transaction, and functions that publish and start sagas in it. */
export interface Handed extends TransactionTools {
  /** A `BusTransaction`, or the transaction of the user's library. */
  readonly tx: unknown;
}

export function handOver(tx: OwnedTransaction, scope: TransactionScope, start: StartInScope): Handed {
  const handed = new HandedTransaction(tx, scope, start);
  if (tx.native === undefined) return { tx: handed, publish: handed.publish, start: handed.start };
  natives.set(tx.native, { owned: tx, scope });
  return { tx: tx.native, publish: handed.publish, start: handed.start };
}

const ISOLATIONS = ["read committed", "repeatable read", "serializable"] as const;

/**
 * Options of `bus.transaction()`. `topics`: wait for room in the outbox for these before BEGIN, with the overflow policy
 * "wait".
 */
export type BusTransactionOptions = Pick<TransactionOptions, "isolation" | "idleTimeoutMs"> & {
  readonly topics?: readonly (AnyContract | string)[];
};

export function transactionLimits(work: unknown, options: BusTransactionOptions): TransactionOptions {
  callable("The first argument of bus.transaction", work);
  rejectUnknownKeys("bus.transaction", options, ["isolation", "idleTimeoutMs", "topics"]);
  const { isolation, idleTimeoutMs } = options;
  return {
    statementMs: CALLER_STATEMENT_MS,
    ...(isolation === undefined ? {} : { isolation: oneOf("isolation", isolation, ISOLATIONS) }),
    ...(idleTimeoutMs === undefined ? {} : { idleTimeoutMs: wholeNumber("idleTimeoutMs", idleTimeoutMs) }),
  };
}

/** A contract with its data, for `bus.publishAll()`. Made by `message()`. */
export interface PreparedMessage {
  readonly contract: AnyContract;
  readonly data: unknown;
  readonly options?: PublishOptions;
}

/** Pairs a contract with data of its type: `bus.publishAll(tx, message(A, a), message(B, b))`. */
export function message<C extends AnyContract>(
  contract: C,
  data: InputOf<C>,
  options?: PublishOptions,
): PreparedMessage {
  return options === undefined ? { contract, data } : { contract, data, options };
}

/** Composes the messages one after another in a transaction. Throws at the first invalid one. */
export async function composeAll(
  compose: Compose,
  messages: readonly PreparedMessage[],
  within: Queryable,
): Promise<Outgoing[]> {
  const outgoing: Outgoing[] = [];
  for (const one of messages) {
    const { contract, data, options } = assertPrepared(one);
    outgoing.push(await compose(contract, data, options, within));
  }
  return outgoing;
}

function assertPrepared(one: PreparedMessage | null | undefined): PreparedMessage {
  if (typeof one === "object" && one !== null && "contract" in one) return one;
  throw new SagaboxError("OPTIONS_INVALID", "publishAll takes messages made by message(contract, data).");
}

/** A statement for a driver of the caller. Every value is a string or null, and the text casts it. */
export interface SqlStatement {
  text: string;
  values: (string | null)[];
}

/** The options of `bus.statements()`. The bus does not see the COMMIT, so it cannot send the message itself. */
export type StatementsOptions = Omit<PublishOptions, "flush">;

/** Composes a message and returns the statements that write it. Returns none if the overflow policy drops the message. */
export async function listStatements(
  { compose, admission, writer }: StatementsParts,
  contract: AnyContract,
  data: unknown,
  options: StatementsOptions = {},
): Promise<SqlStatement[]> {
  if ("flush" in options) {
    throw new SagaboxError(
      "OPTIONS_INVALID",
      "bus.statements: there is no option `flush`, because the bus does not see the COMMIT. A relay sends the message.",
    );
  }
  const admitted = await admission.admit([await compose(contract, data, options)]);
  return admitted.flatMap((one) =>
    writer.listStatements(one).map(({ statement, params }) => ({
      text: statement.text,
      values: params.map((value) => (value === null ? null : String(value))),
    })),
  );
}

interface StatementsParts {
  readonly compose: Compose;
  readonly admission: Pick<Admission, "admit">;
  readonly writer: Pick<OutboxWriter, "listStatements">;
}
