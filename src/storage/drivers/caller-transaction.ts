import { NotInTransactionError, SagaboxError } from "../../errors/index.ts";
import type { OwnedTransaction, Param, Queryable, Rows } from "../database.ts";
import { explainPooler } from "../pooler.ts";
import { explainReadOnly, sqlState } from "../postgres-errors.ts";
import type { Statement } from "../statement.ts";
import { isPgTooOld, pgTooOldError, type PgQuery, type PgResult } from "./pg-shape.ts";

/** A `pg` client inside BEGIN … COMMIT. A pool has `totalCount`, so it does not fit. */
export interface PgTx {
  // Wide on purpose: the overloads of pg's own `query` fit no narrower shape.
  query: (...args: never[]) => unknown;
  getTransactionStatus(): string | null;
  totalCount?: never;
}

/** What `sql.begin(async (tx) => …)` hands out. The root object has `begin`, so it does not fit. */
export interface PostgresJsTx {
  unsafe: (...args: never[]) => unknown;
  savepoint: (...args: never[]) => unknown;
  begin?: never;
}

/** Other drivers add theirs by declaration merging. */
export interface TransactionTypes {
  readonly pg: PgTx;
  readonly "postgres-js": PostgresJsTx;
}

export type CallerTransaction = TransactionTypes[keyof TransactionTypes];

/** Finds the driver by shape and refuses what is not inside a transaction. */
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
    "This pg client has no open transaction, so the message could not share its fate. " +
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
      // The client may hear of the failure a moment after its caller does; then the server says so.
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

/** `count` is of what was written, too; there are rows only of what was returned. */
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
    const asked = this.#tx.unsafe(statement.text, params, { prepare: true });
    // The driver names its statements itself.
    const rows = await asked.catch((error: unknown) => {
      throw explainReadOnly(explainPooler(error, true));
    });
    return {
      rows: toSnakeCaseRows(rows as object[]) as R[],
      rowCount: rows.count ?? rows.length,
      command: "",
    };
  }
}

// The user's `transform` (postgres.camel, .pascal, .kebab) has renamed the columns of our answers too.
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
  return hasMethod(tx, "run") && hasMethod(tx, "commit") && hasMethod(tx, "isolation");
}

function isPgClient(tx: unknown): tx is PgCallerClient {
  // A client of an older pg knows no status; other things with a query do not quote names its way.
  const isClient = hasMethod(tx, "getTransactionStatus") || hasMethod(tx, "escapeIdentifier");
  return hasMethod(tx, "query") && isClient && !hasMethod(tx, "totalCount");
}

function isPostgresJs(tx: unknown): tx is PostgresJsCallable {
  return hasMethod(tx, "unsafe") && hasMethod(tx, "savepoint") && !hasMethod(tx, "begin");
}

function hasMethod(value: unknown, name: string): boolean {
  return ((typeof value === "object" && value !== null) || typeof value === "function") && name in value;
}

function notInTransaction(tx: unknown): NotInTransactionError {
  if (hasMethod(tx, "totalCount") || hasMethod(tx, "begin")) {
    return new NotInTransactionError(
      "A pool was given where an open transaction is needed: the message would not share your transaction's fate. " +
        "Pass the client that ran BEGIN (pg), the `tx` of sql.begin (postgres.js), or use bus.transaction().",
    );
  }
  return new NotInTransactionError(
    "The first argument is no transaction that sagabox knows. " +
      "Pass a pg client inside BEGIN, the `tx` of postgres.js's sql.begin, or the `tx` of bus.transaction().",
  );
}

interface Answer {
  readonly status?: string;
}

interface ObservableClient {
  getTransactionStatus(): string | null;
  readonly connection: {
    on(event: "readyForQuery", listener: (answer: Answer) => void): unknown;
    removeListener(event: "readyForQuery", listener: (answer: Answer) => void): unknown;
  };
}

/**
 * Calls the listener when the open transaction of a caller's `pg` client ends, by COMMIT or by ROLLBACK. Returns false if
 * the client does not report the end.
 */
export function onTransactionEnd(client: object, listener: () => void): boolean {
  if (!isObservable(client) || client.getTransactionStatus() !== "T") return false;
  const { connection } = client;
  const onReady = ({ status }: Answer): void => {
    if (status !== "I") return;
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
