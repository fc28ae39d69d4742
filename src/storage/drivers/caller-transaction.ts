import { NotInTransactionError, SagaboxError } from "../../errors/index.ts";
import type { OwnedTransaction, Param, Queryable, Rows } from "../database.ts";
import { explainPooler } from "../pooler.ts";
import { explainReadOnly, sqlState } from "../postgres-errors.ts";
import type { Statement } from "../statement.ts";
import { isPgTooOld, pgTooOldError, type PgQuery, type PgResult } from "./pg-shape.ts";

/** A `pg` client inside BEGIN … COMMIT. `totalCount?: never` rejects a pool at compile time. */
export interface PgTx {
  // Deliberately loose: the overloads of pg's `query` are not assignable to a narrower type.
  query: (...args: never[]) => unknown;
  getTransactionStatus(): string | null;
  totalCount?: never;
  idleCount?: never;
  waitingCount?: never;
}

/**
 * A `pg` client whose types lack `getTransactionStatus()`. It fits no transaction. The compiler compares a client with the
 * type that is most alike, and then shows the name of the missing property.
 */
export interface PgClientWithOldTypes {
  query: (...args: never[]) => unknown;
  connect: unknown;
  escapeLiteral: unknown;
  release?: unknown;
  "@types/pg is too old: install @types/pg 8.21 or newer": never;
}

/** The `tx` of postgres.js's `sql.begin(async (tx) => …)`. `begin?: never` rejects the root `sql` object at compile time. */
export interface PostgresJsTx {
  unsafe: (...args: never[]) => unknown;
  savepoint: (...args: never[]) => unknown;
  begin?: never;
}

/** Transaction types by driver. Other drivers add their own by declaration merging. */
export interface TransactionTypes {
  readonly pg: PgTx;
  readonly "postgres-js": PostgresJsTx;
}

export type CallerTransaction = TransactionTypes[keyof TransactionTypes] | PgClientWithOldTypes;

/**
 * Recognizes the driver of a caller's transaction by its methods. Throws NotInTransactionError if `tx` is not an open
 * transaction, and TRANSACTION_ABORTED if an earlier `pg` statement in it failed.
 */
export function toQueryable(tx: unknown): Queryable {
  if (isOwned(tx)) return tx;
  if (isPostgresJs(tx)) return new PostgresJsCaller(tx);
  if (isPgClient(tx)) {
    if (isPgTooOld(tx)) throw pgTooOldError();
    return createPgCaller(tx);
  }
  throw notInTransaction(tx);
}

interface PgCallerClient {
  query(query: PgQuery): Promise<PgResult>;
  getTransactionStatus(): string | null;
}

function createPgCaller(client: PgCallerClient): Queryable {
  const status = client.getTransactionStatus();
  if (status === "T") return new PgCaller(client);
  if (status === "E") {
    throw transactionAborted();
  }
  throw new NotInTransactionError(
    "This pg client has no open transaction, so the message would not be rolled back with your data. " +
      "Run BEGIN on it first, or use bus.transaction().",
  );
}

class PgCaller implements Queryable {
  readonly borrowed = true;
  readonly #client: PgCallerClient;

  constructor(client: PgCallerClient) {
    this.#client = client;
  }

  readonly isOpen = (): boolean => this.#client.getTransactionStatus() === "T";

  async run<R>(statement: Statement, params: readonly Param[] = []): Promise<Rows<R>> {
    const query = { name: statement.preparedName, text: statement.text, values: params };
    const result = await this.#client.query(query).catch((error: unknown) => {
      // pg may update the transaction status after the failed query rejects. A query sent in between fails with 25P02.
      throw sqlState(error) === "25P02" ? transactionAborted(error) : explainReadOnly(explainPooler(error));
    });
    return { rows: result.rows as R[], rowCount: result.rowCount ?? 0, command: result.command };
  }
}

function transactionAborted(cause?: unknown): SagaboxError {
  return new SagaboxError(
    "TRANSACTION_ABORTED",
    "An earlier statement of this transaction failed, so nothing more can be written in it. Roll it back first.",
    { cause },
  );
}

/** `count` is the number of rows returned or written. The array contains only the returned rows. */
type PostgresJsRows = unknown[] & { readonly count?: number | null };

interface PostgresJsCallable {
  unsafe(text: string, params: readonly Param[], options: { prepare: boolean }): Promise<PostgresJsRows>;
}

class PostgresJsCaller implements Queryable {
  readonly borrowed = true;
  readonly #tx: PostgresJsCallable;

  constructor(tx: PostgresJsCallable) {
    this.#tx = tx;
  }

  async run<R>(statement: Statement, params: readonly Param[] = []): Promise<Rows<R>> {
    const query = this.#tx.unsafe(statement.text, params, { prepare: true });
    const rows = await query.catch((error: unknown) => {
      // postgres.js names prepared statements itself, so the name in the error does not show that this one is ours.
      throw explainReadOnly(explainPooler(error, true));
    });
    return {
      rows: toSnakeCaseRows(rows as object[]) as R[],
      rowCount: rows.count ?? rows.length,
      command: "",
    };
  }
}

// The user's `transform` (postgres.camel, .pascal, .kebab) also renames the columns of sagabox's results.
function toSnakeCaseRows(rows: readonly object[]): object[] {
  const [first = {}] = rows;
  if (Object.keys(first).every((name) => name === toSnakeCase(name))) return [...rows];
  return rows.map((row) =>
    Object.fromEntries(
      Object.entries(row).map(([name, value]: [string, unknown]) => [toSnakeCase(name), value]),
    ),
  );
}

function toSnakeCase(name: string): string {
  const plain = name.replaceAll("-", "_").replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  return plain.replace(/^_/, "");
}

function isOwned(tx: unknown): tx is OwnedTransaction {
  return hasProperty(tx, "run") && hasProperty(tx, "commit") && hasProperty(tx, "isolation");
}

function isPgClient(tx: unknown): tx is PgCallerClient {
  // Clients of older pg versions have no getTransactionStatus. escapeIdentifier tells them from other objects with `query`.
  const isClient = hasProperty(tx, "getTransactionStatus") || hasProperty(tx, "escapeIdentifier");
  return hasProperty(tx, "query") && isClient && !hasProperty(tx, "totalCount");
}

function isPostgresJs(tx: unknown): tx is PostgresJsCallable {
  return hasProperty(tx, "unsafe") && hasProperty(tx, "savepoint") && !hasProperty(tx, "begin");
}

function hasProperty(value: unknown, name: string): boolean {
  return ((typeof value === "object" && value !== null) || typeof value === "function") && name in value;
}

function notInTransaction(tx: unknown): NotInTransactionError {
  if (hasProperty(tx, "totalCount") || hasProperty(tx, "begin")) {
    return new NotInTransactionError(
      "An open transaction is needed, but got a pool: the message would not be rolled back with your data. " +
        "Pass the client that ran BEGIN (pg), the `tx` of sql.begin (postgres.js), or use bus.transaction().",
    );
  }
  return new NotInTransactionError(
    "The first argument is not a transaction of a supported driver. " +
      "Pass a pg client inside BEGIN, the `tx` of postgres.js's sql.begin, or the `tx` of bus.transaction().",
  );
}

interface ReadyForQuery {
  readonly status?: string;
}

interface ObservableClient {
  getTransactionStatus(): string | null;
  readonly connection: {
    on(event: "readyForQuery", listener: (message: ReadyForQuery) => void): unknown;
    removeListener(event: "readyForQuery", listener: (message: ReadyForQuery) => void): unknown;
  };
}

/**
 * Calls the listener when the open transaction of a caller's `pg` client ends, by COMMIT or by ROLLBACK. Returns false if
 * the client does not report the end.
 */
export function onTransactionEnd(client: object, listener: () => void): boolean {
  if (!isObservable(client) || client.getTransactionStatus() !== "T") return false;
  const { connection } = client;
  const onReady = ({ status }: ReadyForQuery): void => {
    if (status !== "I") return; // not idle: the transaction is still open
    connection.removeListener("readyForQuery", onReady);
    listener();
  };
  connection.on("readyForQuery", onReady);
  return true;
}

function isObservable(client: object): client is ObservableClient {
  const { connection, getTransactionStatus } = client as Partial<ObservableClient>;
  return (
    typeof getTransactionStatus === "function" &&
    typeof connection?.on === "function" &&
    typeof connection.removeListener === "function"
  );
}
