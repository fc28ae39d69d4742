import { SagaboxError } from "../../errors/index.ts";
import { after, withDeadline } from "../../runtime/index.ts";
import type {
  AfterCommitStatement,
  CommitStatement,
  Database,
  OwnedTransaction,
  Param,
  Rows,
  RunLimits,
  TransactionOptions,
} from "../database.ts";
import { MAX_STATEMENT_MS } from "../deadlines.ts";
import { connectFailure, explainReadOnly, SQLSTATE, sqlState } from "../postgres-errors.ts";
import type { Statement } from "../statement.ts";
import type { PgClient } from "./pg-shape.ts";
import { guardAccess } from "./guarded-access.ts";
import type { LibraryClient, TransactionAdapter } from "./library.ts";
import {
  assertAllWritable,
  commitUnknown,
  isRollback,
  replacedByOther,
  transactionAborted,
  transactionInterference,
} from "./pg-transaction.ts";
import { endSession, enterTransaction, readTransactionEnd, readTransactionId } from "./statements.ts";
import { findCause, tagsOf, type TagLog, unwrapError } from "./library-client.ts";

const ACQUIRE_MS = 10_000;
const ROLLBACK_MS = 5_000;
/** A library that limits its transactions by itself must not end one early: sagabox ends it at the handler's deadline. */
const MAX_TRANSACTION_MS = 86_400_000;

/** Rejects the library's function so that it rolls back. It never reaches the user. */
class RollbackRequest extends Error {}

interface Entered {
  readonly xid: string;
  readonly pid: number;
}

/**
 * A transaction that a library of the user opened, as sagabox uses its own: the library sends BEGIN and COMMIT, sagabox
 * decides when. It counts as committed only if the server says so: by the command tag if the `pg` client below is known,
 * otherwise by the state of the transaction id.
 */
export class LibraryTransaction<Tx extends object> implements OwnedTransaction {
  readonly isolation: NonNullable<TransactionOptions["isolation"]>;
  /** The library may use savepoints that sagabox does not see. */
  readonly seesEverything = false;
  /** The transaction for the user's code: the library's own, unusable after its end. */
  readonly native: Tx;
  readonly #adapter: TransactionAdapter<Tx>;
  readonly #database: Database;
  readonly #tx: Tx;
  readonly #client: LibraryClient | undefined;
  readonly #tags: TagLog | undefined;
  readonly #statementMs: number;
  readonly #ending: Ending;
  #entered: Entered | undefined;
  #state: "open" | "closed" = "open";
  #lost: { readonly cause: unknown } | undefined;

  private constructor(parts: {
    readonly adapter: TransactionAdapter<Tx>;
    readonly database: Database;
    readonly tx: Tx;
    readonly client: LibraryClient | undefined;
    readonly ending: Ending;
    readonly options: TransactionOptions;
  }) {
    const { adapter, database, tx, client, ending, options } = parts;
    this.#adapter = adapter;
    this.#database = database;
    this.#tx = tx;
    this.#client = client;
    this.#tags = tagsOf(client);
    this.#ending = ending;
    this.#statementMs = options.statementMs ?? MAX_STATEMENT_MS;
    this.isolation = options.isolation ?? "read committed";
    this.native = guardAccess(tx, () => this.#assertOpen());
  }

  /** Opens a transaction with the library. Throws STORAGE_UNAVAILABLE if it does not come up with one in time. */
  static async begin<Tx extends object>(
    adapter: TransactionAdapter<Tx>,
    database: Database,
    options: TransactionOptions,
  ): Promise<LibraryTransaction<Tx>> {
    const { isolation = "read committed" } = options;
    const ending = new Ending();
    const opening = new Promise<Tx>((resolve, reject) => {
      const running = Promise.resolve().then(() =>
        adapter.run(
          (tx) => {
            resolve(tx);
            return ending.requested;
          },
          { isolation, acquireMs: ACQUIRE_MS, timeoutMs: MAX_TRANSACTION_MS },
        ),
      );
      ending.follow(running);
      running.then(
        () => reject(new Error(`${adapter.name} ended the transaction before its work was done.`)),
        (error: unknown) => reject(connectFailure(unwrapError(error))),
      );
    });
    const tx = await withDeadline(opening, ACQUIRE_MS, () => {
      ending.rollBack(); // as soon as it opens
      throw noTransaction(adapter.name);
    });
    try {
      const client = await adapter.client?.(tx);
      const opened = new LibraryTransaction({ adapter, database, tx, client, ending, options });
      await opened.#enter(options);
      return opened;
    } catch (error) {
      await ending.rollBackWithin(ROLLBACK_MS);
      throw error;
    }
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
    statement: Statement,
    params: readonly Param[] = [],
    limits: RunLimits = {},
  ): Promise<Rows<R>> {
    this.#assertOpen();
    return this.#send<R>(statement, params, limits);
  }

  async query<R>(text: string, params: readonly unknown[] = []): Promise<Rows<R>> {
    this.#assertOpen();
    return this.#query<R>({ text, preparedName: undefined }, params as readonly Param[]);
  }

  async commit(
    last: readonly CommitStatement[] = [],
    afterCommit?: AfterCommitStatement,
  ): Promise<Rows<unknown>[]> {
    this.#assertOpen();
    this.#state = "closed";
    const answers: Rows<unknown>[] = [];
    try {
      for (const one of last) answers.push(await this.#sendLast(one));
      await this.#assertSameTransaction();
    } catch (error) {
      await this.#rollBack();
      throw error;
    }
    this.#tags?.expectEnd();
    const ended = await this.#ending.commit(this.#statementMs);
    this.#tags?.stop();
    await this.#assertCommitted(ended);
    if (afterCommit !== undefined) this.#sendAfterCommit(afterCommit);
    return answers;
  }

  async rollback(): Promise<void> {
    if (this.#state === "closed") return;
    this.#state = "closed";
    // The user's SQL may have committed. A retry would then repeat what is already durable.
    const committed = await this.#hasCommittedEarly();
    await this.#rollBack();
    if (committed) throw transactionInterference("committed");
  }

  destroy(): void {
    this.#state = "closed";
    this.#ending.rollBack();
    // A library cannot be asked to drop a connection whose statement still runs. The server can end the session.
    if (this.#entered !== undefined) {
      const { pid, xid } = this.#entered;
      void this.#database.run(endSession, [pid, xid]).catch(() => undefined);
    }
    (this.#client?.connection as PgClient["connection"])?.stream?.destroy?.();
  }

  async #enter({ idleTimeoutMs, lockTimeoutMs }: TransactionOptions): Promise<void> {
    const limits = [toSetting(idleTimeoutMs), toSetting(lockTimeoutMs)];
    const { rows } = await this.#send<{ xid: unknown; pid: unknown }>(enterTransaction, limits);
    const { xid, pid } = rows[0] ?? {};
    this.#entered = { xid: String(xid), pid: Number(pid) };
  }

  async #send<R>(
    statement: Statement,
    params: readonly Param[],
    { deadlineMs = this.#statementMs }: RunLimits = {},
  ): Promise<Rows<R>> {
    assertAllWritable(params);
    try {
      return await withDeadline(this.#query<R>(statement, params), deadlineMs, () => {
        this.#lost ??= { cause: undefined };
        this.destroy();
        throw new SagaboxError(
          "STORAGE_UNAVAILABLE",
          `${statement.name} was not answered within ${deadlineMs} ms, so the transaction was given up.`,
        );
      });
    } catch (thrown) {
      const error = unwrapError(thrown);
      if (isConnectionLoss(error)) this.#lost ??= { cause: error };
      throw explainReadOnly(error);
    }
  }

  async #query<R>(
    { preparedName, text }: { readonly text: string; readonly preparedName: string | undefined },
    params: readonly Param[],
  ): Promise<Rows<R>> {
    if (this.#client === undefined) {
      const { rows, rowCount } = await this.#adapter.query(this.#tx, text, params);
      return { rows: rows as R[], rowCount, command: "" };
    }
    const result = await this.#client.query({
      ...(preparedName === undefined || this.#database.isPooled === true ? {} : { name: preparedName }),
      text,
      values: params,
    });
    return { rows: result.rows as R[], rowCount: result.rowCount ?? 0, command: result.command };
  }

  async #sendLast({ statement, params, explain }: CommitStatement): Promise<Rows<unknown>> {
    try {
      return await this.#send(statement, params);
    } catch (error) {
      if (sqlState(error) === SQLSTATE.inFailedTransaction) throw transactionAborted();
      throw explain?.(error) ?? error;
    }
  }

  /** Proves that COMMIT will end the transaction that was begun, and that no statement in it has failed. */
  async #assertSameTransaction(): Promise<void> {
    if (this.#tags?.isClean === true) return;
    if ((await this.#readId()) !== this.#entered?.xid) throw await this.#explainReplaced();
  }

  async #readId(): Promise<string | undefined> {
    const { rows } = await this.#sendLast({ statement: readTransactionId, params: [] });
    const { xid } = (rows[0] ?? {}) as { readonly xid?: unknown };
    return typeof xid === "string" ? xid : undefined;
  }

  async #explainReplaced(): Promise<SagaboxError> {
    switch (await this.#readEnd()) {
      case "aborted":
        return transactionInterference("rolled back");
      case "committed":
        return transactionInterference("committed");
      default:
        return replacedByOther();
    }
  }

  async #hasCommittedEarly(): Promise<boolean> {
    if (this.#entered === undefined || this.#lost !== undefined || this.#tags?.isClean === true) return false;
    const current = await this.#readId().catch(() => this.#entered?.xid); // in a failed transaction nothing was committed
    return current !== this.#entered.xid && (await this.#readEnd()) === "committed";
  }

  async #readEnd(): Promise<string | undefined> {
    const { rows } = await this.#database.run<{ status: string | null }>(
      readTransactionEnd,
      [this.#entered?.xid ?? ""],
      { deadlineMs: this.#statementMs },
    );
    return rows[0]?.status ?? undefined;
  }

  async #assertCommitted(ended: EndedBy): Promise<void> {
    if (ended.kind === "committed" && this.#tags?.lastEnd === "COMMIT") return;
    if (ended.kind === "committed" && this.#tags?.lastEnd === "ROLLBACK") throw transactionAborted();
    const cause = ended.kind === "failed" ? unwrapError(ended.error) : undefined;
    if (cause !== undefined && isRollback(cause)) throw cause;
    const status = await this.#readEnd().catch(() => undefined);
    if (status === "committed") return;
    if (cause !== undefined) this.#lost ??= { cause };
    if (status === "aborted") throw cause ?? transactionAborted();
    this.destroy();
    throw commitUnknown(cause);
  }

  async #rollBack(): Promise<void> {
    this.#tags?.stop();
    const ended = await this.#ending.rollBackWithin(ROLLBACK_MS);
    if (ended.kind === "failed") this.#lost ??= { cause: unwrapError(ended.error) };
    if (ended.kind === "late") {
      this.#lost ??= { cause: undefined };
      this.destroy();
    }
  }

  #sendAfterCommit({ statement, params, onSent }: AfterCommitStatement): void {
    const sending = this.#database.run(statement, params);
    onSent(
      sending.then(
        () => true,
        () => false,
      ),
    );
  }

  #assertOpen(): void {
    if (this.#state === "open") return;
    throw new SagaboxError(
      "TRANSACTION_CLOSED",
      "This transaction has ended. Await every query before the function that uses it returns.",
    );
  }
}

/** Begins a transaction in the user's library. Throws STORAGE_UNAVAILABLE if the library opens none in time. */
export function beginInLibrary<Tx extends object>(
  adapter: TransactionAdapter<Tx>,
  database: Database,
  options: TransactionOptions,
): Promise<OwnedTransaction> {
  return LibraryTransaction.begin(adapter, database, options);
}

type EndedBy =
  | { readonly kind: "committed" }
  | { readonly kind: "rolled back" }
  | { readonly kind: "failed"; readonly error: unknown }
  | { readonly kind: "late" };

/** The end of a library's transaction: sagabox requests it, the library carries it out. */
class Ending {
  /** What the library's function waits for. */
  readonly requested: Promise<void>;
  #request!: { readonly commit: () => void; readonly rollBack: (reason: Error) => void };
  readonly #rollback = new RollbackRequest("sagabox rolls this transaction back.");
  #ended: Promise<EndedBy> = Promise.resolve({ kind: "late" });

  constructor() {
    this.requested = new Promise<void>((commit, rollBack) => {
      this.#request = { commit, rollBack };
    });
    this.requested.catch(() => undefined); // rejected before the library has opened a transaction
  }

  follow(running: Promise<unknown>): void {
    this.#ended = running.then(
      () => ({ kind: "committed" }),
      (error: unknown) =>
        findCause(error, (cause) => cause === this.#rollback)
          ? { kind: "rolled back" }
          : { kind: "failed", error },
    );
  }

  async commit(deadlineMs: number): Promise<EndedBy> {
    this.#request.commit();
    return this.#within(deadlineMs);
  }

  rollBack(): void {
    this.#request.rollBack(this.#rollback);
  }

  rollBackWithin(deadlineMs: number): Promise<EndedBy> {
    this.rollBack();
    return this.#within(deadlineMs);
  }

  #within(deadlineMs: number): Promise<EndedBy> {
    return new Promise((resolve) => {
      const cancel = after(deadlineMs, () => resolve({ kind: "late" }));
      void this.#ended.then((ended) => {
        cancel();
        resolve(ended);
      });
    });
  }
}

function toSetting(limitMs: number | undefined): string {
  return limitMs === undefined || !Number.isFinite(limitMs) ? "" : String(Math.ceil(limitMs));
}

function isConnectionLoss(error: unknown): boolean {
  const state = sqlState(error);
  if (state !== undefined)
    return state.startsWith("08") || state.startsWith("57P") || state.startsWith("25P0");
  return !(error instanceof SagaboxError);
}

function noTransaction(library: string): SagaboxError {
  return new SagaboxError(
    "STORAGE_UNAVAILABLE",
    `${library} opened no transaction within ${ACQUIRE_MS} ms. Raise the size of its pool, lower the concurrency of the ` +
      "consumers, or look for transactions that never end.",
  );
}
