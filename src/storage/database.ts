import type { Statement } from "./statement.ts";

/** A parameter value. Every placeholder in our SQL has a cast, so all drivers send the same bytes. */
export type Param = string | number | boolean | null;

export interface Rows<R> {
  readonly rows: R[];
  readonly rowCount: number;
  /** The command tag. The server answers COMMIT with "ROLLBACK" if the transaction had failed. */
  readonly command: string;
}

export interface RunLimits {
  /** After this many milliseconds without an answer the connection counts as hung and is destroyed. */
  readonly deadlineMs?: number;
}

/** Runs SQL inside a transaction, on the caller's client or on one of ours. */
export interface Queryable {
  /** True for a transaction that the caller ends. It may already have ended when a statement arrives. */
  readonly borrowed?: true;
  /** Returns true if the transaction is still open. Missing if the driver cannot tell. */
  readonly isOpen?: () => boolean;
  run<R = Record<string, unknown>>(
    statement: Statement,
    params?: readonly Param[],
    limits?: RunLimits,
  ): Promise<Rows<R>>;
}

/** Plain SQL for handlers and `bus.transaction()`, inside the transaction that sagabox will commit. */
export interface Sql {
  query<R = Record<string, unknown>>(
    text: string,
    params?: readonly unknown[],
  ): Promise<{ rows: R[]; rowCount: number }>;
}

export interface Notification {
  readonly channel: string;
  readonly payload: string;
}

/** One connection, kept until its owner releases it. A broken session cannot be used again; its owner opens another. */
export interface Session extends Queryable {
  /** True if the connection is gone. */
  readonly broken: boolean;
  listen(channel: string, onNotification: (notification: Notification) => void): Promise<void>;
  /** Calls the listener when the connection breaks. */
  onBreak(listener: () => void): void;
  /** Gives the connection back to the pool, or destroys it if `destroy` is true or the connection is broken. */
  release(destroy?: boolean): void;
}

export interface TransactionOptions {
  readonly isolation?: "read committed" | "repeatable read" | "serializable";
  /** The server ends a transaction that is idle for longer (milliseconds), so a stopped process does not keep its locks. */
  readonly idleTimeoutMs?: number;
  /** A statement that waits longer than this for a lock (milliseconds) fails. */
  readonly lockTimeoutMs?: number;
  /**
   * After this many milliseconds without an answer to one of our own statements or to the COMMIT, the connection counts as
   * hung and is destroyed. SQL given to `query` has no such limit: only its author knows how long it takes.
   */
  readonly statementMs?: number;
  /** The limit for BEGIN in milliseconds, which a working server answers immediately. Default: `statementMs`. */
  readonly beginMs?: number;
}

/**
 * A statement that is sent directly after a COMMIT, on the same connection. The caller of `commit` does not wait for it.
 */
export interface AfterCommitStatement {
  readonly statement: Statement;
  readonly params: readonly Param[];
  /** Called after the statement was sent. `answered` resolves when the server answers with a result or an error. */
  readonly onSent: (answered: Promise<unknown>) => void;
}

/** A statement that is sent in one packet with the COMMIT. */
export interface CommitStatement {
  readonly statement: Statement;
  readonly params: readonly Param[];
  /**
   * Converts the server's error for this statement into the error that `commit` throws. Called only for this statement,
   * because SQL of the user can fail with any SQLSTATE and must not be misread.
   */
  readonly explain?: (error: unknown) => unknown;
}

/** A transaction that sagabox begins and commits. */
export interface OwnedTransaction extends Queryable, Sql {
  readonly isolation: NonNullable<TransactionOptions["isolation"]>;
  readonly open: boolean;
  /** True if the connection is gone. Certain only after `commit` or `rollback`. */
  readonly lost: boolean;
  /** The error of the server or the driver when the connection ended, if there was one. */
  readonly lostCause: unknown;
  /** False if the driver does not report statements that other code runs on the same connection, such as SAVEPOINT. */
  readonly seesEverything: boolean;
  /** The transaction object of the user's library, if the library opened this transaction. */
  readonly native?: object;
  /** Called and awaited before SQL of the user creates, releases or rolls back to a savepoint. */
  beforeSavepoint?: () => Promise<void>;
  /**
   * Sends the statements and COMMIT in one packet. Resolves with the results of the statements after the server confirmed
   * the COMMIT. Throws TRANSACTION_CLOSED if SQL inside has ended the transaction or tried to, and TRANSACTION_COMMITTED if
   * that SQL may have committed it.
   */
  commit(last?: readonly CommitStatement[], afterCommit?: AfterCommitStatement): Promise<Rows<unknown>[]>;
  /** Throws TRANSACTION_COMMITTED when SQL inside may have committed the transaction: a retry would repeat it. */
  rollback(): Promise<void>;
  /** Ends the connection. Later statements of the transaction fail. */
  destroy(): void;
}

/** How many connections a pool has, and how many callers wait for one. */
export interface PoolUsage {
  readonly total: number;
  readonly idle: number;
  readonly waiting: number;
}

export interface Database extends Queryable {
  /** True behind a pooler in transaction mode: each transaction may run on another session of the server. */
  readonly isPooled?: boolean;
  /** Maximum number of connections in the pool. */
  readonly size: number;
  /** Returns the current pool usage, or undefined if the pool does not report it. */
  usage?(): PoolUsage | undefined;
  /** Opens a dedicated connection. `settings` are set for the session; `limits` apply to each of its statements. */
  session(purpose: string, settings?: Readonly<Record<string, string>>, limits?: RunLimits): Promise<Session>;
  begin(options?: TransactionOptions): Promise<OwnedTransaction>;
  /**
   * Runs a statement like `run`, but sends it synchronously if a connection is idle, ahead of work that is queued in the event
   * loop. Missing if the driver cannot do this.
   */
  runImmediately?(statement: Statement, params: readonly Param[], limits?: RunLimits): Promise<unknown>;
  close(): Promise<void>;
}
