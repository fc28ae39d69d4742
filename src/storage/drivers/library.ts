import type { Param, TransactionOptions } from "../database.ts";
import type { PgResult } from "./pg-shape.ts";

/** The answer to a statement that sagabox ran through a library. */
export interface LibraryRows {
  readonly rows: readonly unknown[];
  /** How many rows the statement returned, or wrote if it returned none. */
  readonly rowCount: number;
}

/** A `pg` client below a transaction of a library. */
export interface LibraryClient {
  query(query: { text: string; values?: readonly unknown[]; name?: string }): Promise<PgResult>;
  getTransactionStatus(): string | null;
  readonly connection?: object;
}

/**
 * How sagabox writes into a transaction that a library opened: an ORM, a query builder or a driver.
 */
export interface Library<Tx = object> {
  /** The name of the library, for error messages. */
  readonly name: string;
  /** How a user opens a transaction, for error messages: `db.transaction(async (tx) => …)`. */
  readonly call: string;
  /** Recognizes a transaction of the library by its shape. */
  isTransaction(value: object): boolean;
  /** Recognizes the object from which transactions are opened, to explain a mix-up. */
  isRoot(value: object): boolean;
  /**
   * Returns the `pg` client below the transaction, or undefined if the library hides it or uses another driver. sagabox then
   * sends its statements there: prepared, with exact row counts, and with the server's own word on how the transaction ended.
   */
  client?(tx: Tx): LibraryClient | undefined | Promise<LibraryClient | undefined>;
  /**
   * Calls the listener when the transaction of the caller ends. Returns false if the library does not report it and hides its
   * client.
   */
  onEnd?(tx: Tx, listener: () => void): boolean;
  /** Runs one statement with `$1` placeholders in the transaction. The parameters must reach the server as parameters. */
  query(tx: Tx, text: string, params: readonly Param[]): Promise<LibraryRows>;
}

/** The options for a transaction that sagabox asks a library to open. */
export interface LibraryTransactionOptions {
  readonly isolation: NonNullable<TransactionOptions["isolation"]>;
  /** The library must wait at most this long for a connection (milliseconds). */
  readonly acquireMs: number;
  /** The library must not end the transaction before this time has passed (milliseconds). */
  readonly timeoutMs: number;
}

/**
 * Lets handlers, `tx` steps of sagas and `bus.transaction()` run in transactions of the user's own library. Functions such
 * as `drizzleTransactions()` make one. The guide "your own library" says how to write one for another library.
 */
export interface TransactionAdapter<Tx> extends Pick<Library<Tx>, "name" | "client" | "query"> {
  /**
   * Opens a transaction, calls `work` once with it, commits when `work` resolves and rolls back when it rejects. Resolves
   * after the COMMIT; rejects after the ROLLBACK, with the error of `work`.
   */
  run(work: (tx: Tx) => Promise<void>, options: LibraryTransactionOptions): Promise<unknown>;
}
