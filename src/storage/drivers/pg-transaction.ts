import { SagaboxError } from "../../errors/index.ts";
import { withDeadline } from "../../runtime/index.ts";
import type {
  AfterCommitStatement,
  CommitStatement,
  OwnedTransaction,
  Param,
  Rows,
  RunLimits,
  TransactionOptions,
} from "../database.ts";
import { MAX_STATEMENT_MS } from "../deadlines.ts";
import { explainReadOnly, isReadOnlyRefusal, SQLSTATE, sqlState } from "../postgres-errors.ts";
import { type Statement, withoutName } from "../statement.ts";
import { cancelStatement } from "./cancel-statement.ts";
import { type ConnectionWatch, destroyClient } from "./connection-watch.ts";
import type { PgClient, PgQuery, PgResult } from "./pg-shape.ts";
import { runAllInTime, runStatementInTime, runTextInTime, sendQuery } from "./send-query.ts";
import { checkMark, ROUND_TRIP } from "./statements.ts";
import { findSavepointTags, findTransactionControl } from "./transaction-control.ts";
import { canWatch, type Interference, TransactionWatch } from "./transaction-watch.ts";

const ROLLBACK_MS = 5_000;
const WRITES: readonly string[] = ["INSERT", "UPDATE", "DELETE", "MERGE"];
/** In a SELECT: row locks, and writes in its WITH. A read-only transaction refuses both. */
const WRITES_IN_SELECT = /\b(?:insert\s+into|update|delete\s+from|for\s+(?:key\s+)?share)\b/i;

/** For drivers that show no command tags: proves that the transaction is the one that was begun. */
const MARK_CHECK: CommitStatement = {
  statement: checkMark,
  params: [],
  explain: (error) => (sqlState(error) === SQLSTATE.divisionByZero ? replacedByOther() : error),
};

/** A statement that is not answered yet. */
interface InFlight {
  readonly text: unknown;
  /**
   * Command tags of its savepoints that have not arrived yet. Computed from the text when the first one may have arrived.
   */
  savepointTags?: string[];
}

const returnTrue = (): boolean => true;
const returnFalse = (): boolean => false;

/**
 * A transaction that sends BEGIN with its first statement and COMMIT with its last ones. It counts as committed only when
 * the server has answered the COMMIT with the tag COMMIT.
 */
export class PgTransaction implements OwnedTransaction {
  readonly isolation: Isolation;
  readonly seesEverything: boolean;
  beforeSavepoint?: () => Promise<void>;
  readonly #client: PgClient;
  readonly #connection: ConnectionWatch;
  readonly #statementMs: number;
  readonly #beginMs: number;
  readonly #beginText: string;
  readonly #isPooled: boolean;
  readonly #inFlight = new Map<Promise<PgResult>, InFlight>();
  #state: "open" | "closed" = "open";
  #released = false;
  #begun: Promise<PgResult> | undefined;
  #notBegun: { readonly reason: unknown } | undefined;
  #watch: TransactionWatch | undefined;
  /** SQL that would have ended the transaction was refused: the transaction must not commit after that. */
  #refused: SagaboxError | undefined;
  #asked = false;
  #lost: { readonly cause: unknown } | undefined;
  /** A write succeeded, so neither the server nor this transaction is read-only, unless SQL of the user made it so. */
  #hasWritten = false;
  /** The first write was refused: the connection leads to a standby, or was made in a read-only phase. */
  #isReadOnly = false;
  /** Resolves when the statement after the COMMIT is answered: true unless it failed. */
  #afterCommitAnswer: Promise<boolean> | undefined;

  /** With `isPooled`, a pooler is in between, and statements are not prepared by name. */
  constructor(client: PgClient, options: TransactionOptions, connection: ConnectionWatch, isPooled = false) {
    checkIsolation(options.isolation);
    this.#client = client;
    this.#connection = connection;
    this.#isPooled = isPooled;
    this.#statementMs = options.statementMs ?? MAX_STATEMENT_MS;
    this.#beginMs = options.beginMs ?? this.#statementMs;
    this.isolation = options.isolation ?? "read committed";
    client.on("error", this.#onLoss); // without a listener Node would end the process
    this.#setPipeline(true);
    this.seesEverything = canWatch(client);
    this.#beginText = formatBegin(this.isolation, options, { mark: !this.seesEverything });
  }

  get open(): boolean {
    return this.#state === "open";
  }

  get lost(): boolean {
    return this.#lost !== undefined;
  }

  get lostCause(): unknown {
    return this.#lost?.cause;
  }

  async run<R>(
    given: Statement,
    params: readonly Param[] = [],
    { deadlineMs = this.#statementMs }: RunLimits = {},
  ): Promise<Rows<R>> {
    assertAllWritable(params);
    const statement = this.#toSend(given);
    try {
      const send = (): Promise<PgResult> =>
        runStatementInTime(this.#client, this.#connection, { statement, params, deadlineMs });
      return await this.#send<R>(send, statement.text);
    } catch (error) {
      throw this.#isReadOnly ? explainReadOnly(error) : error;
    }
  }

  query<R>(text: string, params: readonly unknown[] = []): Promise<Rows<R>> {
    // A plain string is cheaper for the driver. A value of another type must not be taken for a query object or a callback.
    if (typeof text !== "string" || typeof params === "function")
      return this.#send<R>(() => sendQuery(this.#client, { text, values: params }), text);
    const values = Array.isArray(params) && params.length === 0 ? undefined : params;
    const control = findTransactionControl(text);
    if (control?.kind === "end") return Promise.reject((this.#refused = commandRefused(control.command)));
    const send = (): Promise<PgResult> => sendQuery(this.#client, text, values);
    if (control === undefined || this.beforeSavepoint === undefined) return this.#send<R>(send, text);
    return this.beforeSavepoint().then(() => this.#send<R>(send, text));
  }

  async commit(
    last: readonly CommitStatement[] = [],
    afterword?: AfterCommitStatement,
  ): Promise<Rows<unknown>[]> {
    this.#assertOpen();
    const queries = last.map((one) => this.#toQuery(one)); // throws while everything can still be rolled back
    if (this.#refused !== undefined) throw this.#refused;
    this.#state = "closed";
    // A statement that was not awaited may still end or abort the transaction.
    if (this.#inFlight.size > 0) await Promise.allSettled(this.#inFlight.keys());
    if (this.#asked && this.#client.readyForQuery === false) await this.#awaitOthers();
    this.#assertNotLost();
    this.#assertNotEndedByOthers();
    this.#watch?.stop(); // the COMMIT that follows is ours
    const check = this.seesEverything || !this.#asked ? [] : [MARK_CHECK];
    const answers = this.#sendTogether(() => {
      void this.#begin();
      const all = [...check.map((one) => this.#toQuery(one)), ...queries, "commit"];
      const answering = runAllInTime(this.#client, this.#connection, all, this.#statementMs);
      if (afterword !== undefined) this.#sendAfterCommit(afterword);
      return answering;
    });
    return (await this.#settleCommit(await answers, [...check, ...last])).slice(check.length);
  }

  async rollback(): Promise<void> {
    if (this.#state === "open") {
      this.#state = "closed";
      await this.#sendRollback();
    }
    // Read after the server has answered the rollback: SQL that was not awaited may have committed before it.
    const interference = this.#watch?.interference;
    if (interference === "committed" || interference === "prepared")
      throw transactionInterference(interference);
  }

  async #sendRollback(): Promise<void> {
    if (this.#begun === undefined) return this.#release(this.lost);
    const answered = await this.#isAnsweredInTime(
      this.#begun.then(() => sendQuery(this.#client, "rollback")),
    );
    if (!answered) this.#lost ??= { cause: undefined };
    this.#release(!answered);
  }

  // If the server does not answer, the connection is ended; the server then rolls back anyway.
  #isAnsweredInTime(rolledBack: Promise<unknown>): Promise<boolean> {
    return withDeadline(rolledBack.then(returnTrue, returnFalse), ROLLBACK_MS, returnFalse);
  }

  destroy(): void {
    this.#state = "closed";
    if (this.#inFlight.size > 0 && !this.#released) cancelStatement(this.#client);
    this.#release(true);
  }

  readonly #onLoss = (cause: unknown): void => {
    this.#lost ??= { cause };
  };

  async #send<R>(send: () => Promise<PgResult>, text: unknown): Promise<Rows<R>> {
    this.#assertOpen();
    // Outside its transaction, a statement would be committed alone or by the wrong COMMIT.
    if (this.#watch?.interference !== undefined) throw transactionInterference(this.#watch.interference);
    this.#asked = true;
    const answer = this.#begun === undefined ? this.#sendFirst(send) : send();
    this.#inFlight.set(answer, { text });
    try {
      const result = await answer;
      this.#hasWritten ||= isWrite(result.command, text);
      return toRows<R>(result);
    } catch (error) {
      this.#noticeReadOnly(error);
      if (error instanceof Error) Error.captureStackTrace(error); // the stack of the server's error names no line of the caller
      throw error;
    } finally {
      this.#inFlight.delete(answer);
    }
  }

  #sendFirst(send: () => Promise<PgResult>): Promise<PgResult> {
    const stream = this.#client.connection?.stream;
    stream?.cork?.();
    process.nextTick(() => stream?.uncork?.()); // statements sent in the same turn leave in the same packet
    void this.#begin();
    return send();
  }

  #noticeReadOnly(error: unknown): void {
    if (!this.#hasWritten && isReadOnlyRefusal(error)) this.#isReadOnly = true;
  }

  #begin(): Promise<PgResult> {
    if (this.#begun === undefined) {
      this.#begun = runTextInTime(this.#client, this.#connection, this.#beginText, {
        deadlineMs: this.#beginMs,
        // Called before the next answer is read, so every tag of this transaction is seen, and no earlier one.
        onAnswer: () => {
          if (this.#asked && !this.#released)
            this.#watch = new TransactionWatch(this.#client, this.#takeExpected);
        },
      });
      this.#begun.catch((reason: unknown) => void (this.#notBegun = { reason })); // rethrown where it is needed
    }
    return this.#begun;
  }

  readonly #takeExpected = (tag: string): boolean => {
    for (const statement of this.#inFlight.values()) {
      const { text } = statement;
      const tags = (statement.savepointTags ??= typeof text === "string" ? findSavepointTags(text) : []);
      const at = tags.indexOf(tag);
      if (at !== -1) return tags.splice(at, 1).length > 0;
    }
    return false;
  };

  /** Statements sent while `send` runs leave as one packet. */
  #sendTogether<T>(send: () => T): T {
    const stream = this.#client.connection?.stream;
    stream?.cork?.();
    try {
      return send();
    } finally {
      stream?.uncork?.();
    }
  }

  // Does not add the property to a driver without this mode.
  #setPipeline(on: boolean): void {
    if (this.#client.pipeline !== undefined) this.#client.pipeline = on;
  }

  #sendAfterCommit(afterword: AfterCommitStatement): void {
    const said = {
      ...afterword,
      statement: this.#toSend(afterword.statement),
      deadlineMs: this.#beginMs,
    };
    this.#afterCommitAnswer = runStatementInTime(this.#client, this.#connection, said).then(
      () => true,
      () => false,
    );
    afterword.onSent(this.#afterCommitAnswer);
  }

  async #settleCommit(
    answers: PromiseSettledResult<PgResult>[],
    last: readonly CommitStatement[],
  ): Promise<Rows<unknown>[]> {
    const failedAt = answers.findIndex((answer) => answer.status === "rejected");
    const failed = answers[failedAt] as PromiseRejectedResult | undefined;
    const commit = answers.at(-1);
    if (commit?.status === "rejected" && !isRollback(commit.reason)) {
      // User code can raise the SQLSTATE that the server uses when it ends a session; the session is then still open.
      const isAlive = sqlState(commit.reason) !== undefined && (await this.#isAnsweredInTime(this.#probe()));
      if (!isAlive) this.#lost ??= { cause: commit.reason };
      this.#release(true);
      throw isAlive ? commit.reason : commitUnknown(commit.reason);
    }
    if (failed !== undefined) this.#noticeReadOnly(failed.reason);
    this.#release(commit?.status === "rejected");
    if (this.#notBegun !== undefined) throw this.#notBegun.reason;
    if (failed !== undefined) throw this.#explain(failed.reason, last[failedAt]);
    if (commit?.status !== "fulfilled" || commit.value.command !== "COMMIT") throw transactionAborted();
    return answers.slice(0, -1).map((answer) => toRows((answer as PromiseFulfilledResult<PgResult>).value));
  }

  #explain(reason: unknown, last: CommitStatement | undefined): unknown {
    if (this.#isReadOnly) return explainReadOnly(reason);
    return last?.explain?.(reason) ?? reason;
  }

  /** Other code has a statement in flight on the client. The server answers it before this one. */
  async #awaitOthers(): Promise<void> {
    const deadlineMs = this.#statementMs;
    await runTextInTime(this.#client, this.#connection, ROUND_TRIP, { deadlineMs }).catch(() => undefined);
  }

  #probe(): Promise<unknown> {
    return sendQuery(this.#client, "rollback");
  }

  #toSend(statement: Statement): Statement {
    return this.#isPooled ? withoutName(statement) : statement;
  }

  #toQuery({ statement, params }: CommitStatement): PgQuery {
    assertAllWritable(params);
    return { name: this.#toSend(statement).preparedName, text: statement.text, values: params };
  }

  #assertOpen(): void {
    if (this.#state === "open") return;
    throw new SagaboxError(
      "TRANSACTION_CLOSED",
      "This transaction has ended. Await every query before the function that uses it returns.",
    );
  }

  // The COMMIT was never sent, so the transaction certainly did not commit.
  #assertNotLost(): void {
    if (this.#lost === undefined && !this.#released) return;
    this.#release(true);
    throw new SagaboxError(
      "STORAGE_UNAVAILABLE",
      "The connection ended before COMMIT was sent, so the transaction did not happen.",
      { cause: this.#lost?.cause },
    );
  }

  // A COMMIT outside a transaction also answers COMMIT, so a transaction that the user's own SQL ended
  // would look committed while the statements sent with it ran on their own.
  #assertNotEndedByOthers(): void {
    const isOutside = this.#asked && this.#client.getTransactionStatus() === "I";
    const interference = this.#watch?.interference ?? (isOutside ? "rolled back" : undefined);
    if (interference === undefined) return;
    this.#release(true);
    throw isOutside && !this.seesEverything ? replacedByOther() : transactionInterference(interference);
  }

  #release(destroy: boolean): void {
    if (this.#released) return;
    this.#released = true;
    if (destroy || this.#afterCommitAnswer === undefined) this.#returnClient(destroy);
    else void this.#afterCommitAnswer.then((answered) => this.#returnClient(!answered));
  }

  #returnClient(destroy: boolean): void {
    // A pipelining client would wait for its queries before it ends; a destroyed one must not.
    this.#setPipeline(false);
    this.#watch?.stop();
    this.#client.removeListener("error", this.#onLoss);
    if (destroy || this.#isReadOnly) destroyClient(this.#client);
    else this.#client.release();
  }
}

function isWrite(command: string, text: unknown): boolean {
  return WRITES.includes(command) || (command === "SELECT" && WRITES_IN_SELECT.test(String(text)));
}

// Users may pass any value, and the driver encodes it as JSON. If that fails, the driver closes the prepared statement but
// still considers it open, and the COMMIT sent after it would commit without this statement.
export function assertAllWritable(params: readonly unknown[]): void {
  for (const param of params)
    if (typeof param === "object" && param !== null && !ArrayBuffer.isView(param)) JSON.stringify(param);
}

function toRows<R>(result: PgResult): Rows<R> {
  return { rows: result.rows as R[], rowCount: result.rowCount ?? 0, command: result.command };
}

const LEAVE_IT = "Leave that to sagabox: return to commit, throw to roll back.";

/** The error for a `command` that should have been sent through the transaction, but was not. */
function commandRefused(command: string): SagaboxError {
  return new SagaboxError(
    "TRANSACTION_CLOSED",
    `${command} was refused: it would end the transaction that holds the effect and everything published in it. ${LEAVE_IT}`,
  );
}

/** The error for statements that ended the transaction on its connection, or used savepoints that were noticed too late. */
export function transactionInterference(interference: Interference): SagaboxError {
  switch (interference) {
    case "committed":
      return new SagaboxError(
        "TRANSACTION_COMMITTED",
        "SQL inside the transaction committed it early (COMMIT). What was written before that is durable, the rest was " +
          `rolled back, and a retry cannot tell them apart. ${LEAVE_IT}`,
      );
    case "prepared":
      return new SagaboxError(
        "TRANSACTION_COMMITTED",
        "SQL inside the transaction took it away from sagabox (PREPARE TRANSACTION). It holds its locks until it is ended: " +
          "find it in pg_prepared_xacts and run ROLLBACK PREPARED.",
      );
    case "rolled back":
      return new SagaboxError(
        "TRANSACTION_CLOSED",
        `The transaction was ended by SQL run inside it (ROLLBACK), so nothing of it was committed. ${LEAVE_IT}`,
      );
    case "savepoint":
      return new SagaboxError(
        "TRANSACTION_CLOSED",
        "A savepoint was used on the transaction's connection without `tx.query`, so messages published around it could not " +
          "follow it. The transaction was rolled back; send savepoints through `tx.query`.",
      );
  }
}

/** The error for a transaction that the server no longer has. Only the server knows how it ended. */
export function replacedByOther(): SagaboxError {
  return new SagaboxError(
    "TRANSACTION_COMMITTED",
    "The transaction was ended by SQL run inside it and another was begun. What was written before that may have been " +
      `committed. ${LEAVE_IT}`,
  );
}

export function transactionAborted(): SagaboxError {
  return new SagaboxError(
    "TRANSACTION_ABORTED",
    "The server rolled the transaction back because a statement in it had failed and the failure was swallowed. " +
      "Let SQL errors reach the caller, or wrap the statement in a savepoint.",
  );
}

export function commitUnknown(cause: unknown): SagaboxError {
  return new SagaboxError(
    "COMMIT_UNKNOWN",
    "The connection ended before the server answered COMMIT: the transaction may or may not have happened. " +
      "Look for its effect before doing it again.",
    { cause },
  );
}

/**
 * Whether a COMMIT failed with a SQLSTATE (deferred constraint, serialization failure): then it certainly did not commit.
 */
export function isRollback(reason: unknown): boolean {
  const state = sqlState(reason);
  return state !== undefined && !state.startsWith("08") && !state.startsWith("57P");
}

type Isolation = NonNullable<TransactionOptions["isolation"]>;

const ISOLATIONS: readonly unknown[] = ["read committed", "repeatable read", "serializable"];

/** The level becomes part of the SQL text, so nothing but one of these may come near it. */
export function checkIsolation(isolation: unknown): void {
  if (isolation === undefined || ISOLATIONS.includes(isolation)) return;
  throw new SagaboxError("OPTIONS_INVALID", `isolation must be one of: ${ISOLATIONS.join(", ")}.`);
}

/** `mark` sets what the last statement of the transaction checks; it ends with the transaction. */
function formatBegin(
  isolation: Isolation,
  { idleTimeoutMs, lockTimeoutMs }: TransactionOptions,
  { mark }: { readonly mark: boolean },
): string {
  let text = `begin isolation level ${isolation}`;
  if (idleTimeoutMs !== undefined) {
    text += `; set local idle_in_transaction_session_timeout = ${Math.ceil(idleTimeoutMs)}`;
  }
  if (lockTimeoutMs !== undefined) text += `; set local lock_timeout = ${Math.ceil(lockTimeoutMs)}`;
  return mark ? `${text}; set local sagabox.transaction = 'open'` : text;
}
