import type { Statement } from "./statement.ts";

/** Text, number, boolean or null: every placeholder carries a cast, so that each driver sends the same bytes. */
export type Param = string | number | boolean | null;

export interface Rows<R> {
  readonly rows: R[];
  readonly rowCount: number;
  /** The command tag: a COMMIT that answers ROLLBACK did not commit. */
  readonly command: string;
}

export interface RunLimits {
  /** How long the statement may go unanswered before its connection counts as hung and is destroyed. */
  readonly deadlineMs?: number;
}

/** Anything that runs SQL inside some transaction: a caller's client, or one of ours. */
export interface Queryable {
  /** Set where somebody else ends the transaction, and may have ended it before a statement arrives. */
  readonly borrowed?: true;
  /** Where the driver knows: whether the transaction is still there, as far as it has heard. */
  readonly isOpen?: () => boolean;
  run<R = Record<string, unknown>>(
    statement: Statement,
    params?: readonly Param[],
    limits?: RunLimits,
  ): Promise<Rows<R>>;
}

/** What a handler or a `bus.transaction()` gets: plain SQL, inside the transaction that we will commit. */
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

/** One connection held for as long as its owner lives. A session that broke is replaced, never repaired. */
export interface Session extends Queryable {
  readonly broken: boolean;
  listen(channel: string, hear: (notification: Notification) => void): Promise<void>;
  onBreak(told: () => void): void;
  /** Gives the connection back, or destroys it when anything about it is in doubt. */
  release(destroy?: boolean): void;
}

export interface TransactionOptions {
  readonly isolation?: "read committed" | "repeatable read" | "serializable";
  /** The server ends a transaction that sits idle for longer: a stopped process must not keep its locks. */
  readonly idleTimeoutMs?: number;
  /** A statement that waits longer for what another transaction holds fails. */
  readonly lockTimeoutMs?: number;
  /**
   * How long each of our own statements in it, and its COMMIT, may go unanswered before the connection counts as hung and is
   * destroyed. SQL given to `query` has no such limit: its author knows how long it takes.
   */
  readonly statementMs?: number;
  /** The same for BEGIN, which a living server answers at once. Default: `statementMs`. */
  readonly beginMs?: number;
}

/** Said right behind a COMMIT, on the same connection and outside the transaction. Nobody waits for it. */
export interface AfterCommitStatement {
  readonly statement: Statement;
  readonly params: readonly Param[];
  /** Hears when it has left; `answered` resolves when the server has answered, whatever it said. */
  readonly onSent: (answered: Promise<unknown>) => void;
}

/** A statement that travels with the COMMIT. */
export interface CommitStatement {
  readonly statement: Statement;
  readonly params: readonly Param[];
  /**
   * Turns the error that answers this very statement into the one that `commit` throws. User code can raise any SQLSTATE,
   * so a SQLSTATE means something to us only as the answer to a statement of ours.
   */
  readonly explain?: (error: unknown) => unknown;
}

/** A transaction that we own: its COMMIT is ours to send and its answer ours to read. */
export interface OwnedTransaction extends Queryable, Sql {
  readonly isolation: NonNullable<TransactionOptions["isolation"]>;
  readonly open: boolean;
  /** The connection under it is gone. Known for certain only after `commit` or `rollback`. */
  readonly lost: boolean;
  /** What the server or the driver said when the connection ended, if they did. */
  readonly lostCause: unknown;
  /** False where the driver hides statements that other code runs on the same connection, such as savepoints. */
  readonly seesEverything: boolean;
  /** Awaited before SQL of the user's that makes, releases or rolls back to a savepoint. */
  beforeSavepoint?: () => Promise<void>;
  /**
   * Sends the statements and the COMMIT in one go; resolves only when the server answered COMMIT. Throws
   * TRANSACTION_CLOSED when SQL inside has ended the transaction or tried to, TRANSACTION_COMMITTED when that may have
   * committed it.
   */
  commit(last?: readonly CommitStatement[], afterword?: AfterCommitStatement): Promise<Rows<unknown>[]>;
  /** Throws TRANSACTION_COMMITTED when SQL inside may have committed the transaction: a retry would repeat it. */
  rollback(): Promise<void>;
  /** Ends the connection under a transaction whose owner gave up; whatever it still tries fails. */
  destroy(): void;
}

/** What became of the connections of a pool. */
export interface PoolUsage {
  readonly total: number;
  readonly idle: number;
  /** Callers that wait for one. */
  readonly waiting: number;
}

export interface Database extends Queryable {
  /** How many connections there can be at once. */
  readonly size: number;
  /** Undefined where that cannot be told. */
  usage?(): PoolUsage | undefined;
  /** A connection of its own, for as long as the owner needs it. The limits are those of each of its statements. */
  session(purpose: string, settings?: Readonly<Record<string, string>>, limits?: RunLimits): Promise<Session>;
  begin(options?: TransactionOptions): Promise<OwnedTransaction>;
  /** Runs a statement by itself as `run` does, and sends it before whatever else waits for this turn of the event loop. */
  runImmediately?(statement: Statement, params: readonly Param[], limits?: RunLimits): Promise<unknown>;
  close(): Promise<void>;
}
