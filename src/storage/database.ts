import type { Statement } from "./statement.ts";

/** A parameter value. Every placeholder in our SQL has a cast, so all drivers send the same bytes. */
export type Param = string | number | boolean | null;

export interface Rows<R> {
  readonly rows: R[];
  readonly rowCount: number;
  /** The command tag: a COMMIT that answers ROLLBACK did not commit. */
  readonly command: string;
}

export interface RunLimits {
  /** After this many milliseconds without an answer the connection counts as hung and is destroyed. */
  readonly deadlineMs?: number;
}

/** Runs SQL inside a transaction, on the caller's client or on one of ours. */
export interface Queryable {
  /** Set if the caller ends the transaction, which may then end before a statement arrives. */
  readonly borrowed?: true;
  /** Returns whether the transaction is still open. Missing if the driver does not know. */
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

/** One connection, kept until its owner releases it. A broken session is replaced, never repaired. */
export interface Session extends Queryable {
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
  /** Called when the statement was sent. `answered` resolves when the server has answered, also with an error. */
  readonly onSent: (answered: Promise<unknown>) => void;
}

/** A statement that is sent in one packet with the COMMIT. */
export interface CommitStatement {
  readonly statement: Statement;
  readonly params: readonly Param[];
  /**
   * Turns the error that the server answers to this statement into the one that `commit` throws. User code can raise any
   * SQLSTATE, so only the answer to one of our own statements may be interpreted.
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
  /** False if the driver hides statements that other code runs on the same connection, such as savepoints. */
  readonly seesEverything: boolean;
  /** Awaited before SQL of the user creates, releases or rolls back to a savepoint. */
  beforeSavepoint?: () => Promise<void>;
  /**
   * Sends the statements and the COMMIT in one go; resolves only when the server answered COMMIT. Throws
   * TRANSACTION_CLOSED when SQL inside has ended the transaction or tried to, TRANSACTION_COMMITTED when that may have
   * committed it.
   */
  commit(last?: readonly CommitStatement[], afterword?: AfterCommitStatement): Promise<Rows<unknown>[]>;
  /** Throws TRANSACTION_COMMITTED when SQL inside may have committed the transaction: a retry would repeat it. */
  rollback(): Promise<void>;
  /** Ends the connection. Later statements of the transaction fail. */
  destroy(): void;
}

/** How many connections of a pool exist, are idle, and are waited for. */
export interface PoolUsage {
  readonly total: number;
  readonly idle: number;
  /** Callers that wait for a connection. */
  readonly waiting: number;
}

export interface Database extends Queryable {
  /** The largest number of connections. */
  readonly size: number;
  /** The use of the connections. Undefined if the pool does not report it. */
  usage?(): PoolUsage | undefined;
  /** Opens a dedicated connection. `settings` are set for the session; `limits` apply to each of its statements. */
  session(purpose: string, settings?: Readonly<Record<string, string>>, limits?: RunLimits): Promise<Session>;
  begin(options?: TransactionOptions): Promise<OwnedTransaction>;
  /** Runs a statement like `run`, but sends it before other work that waits for this turn of the event loop. */
  runImmediately?(statement: Statement, params: readonly Param[], limits?: RunLimits): Promise<unknown>;
  close(): Promise<void>;
}
