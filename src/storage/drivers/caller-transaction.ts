import { NotInTransactionError, SagaboxError } from "../../errors/index.ts";
import type { OwnedTransaction, Param, Queryable, Rows } from "../database.ts";
import { explainPooler } from "../pooler.ts";
import { explainReadOnly, SQLSTATE, sqlState } from "../postgres-errors.ts";
import type { Statement } from "../statement.ts";
import { drizzle, type DrizzleTx } from "./drizzle.ts";
import { knex, type KnexTx } from "./knex.ts";
import { kysely, type KyselyTx } from "./kysely.ts";
import { onClientTransactionEnd, unwrapError } from "./library-client.ts";
import { isObject } from "./library-shape.ts";
import type { Library, LibraryClient } from "./library.ts";
import { isPgTooOld, pgTooOldError } from "./pg-shape.ts";
import { postgresJs, type PostgresJsTx } from "./postgres-js.ts";
import { prisma, type PrismaTx } from "./prisma.ts";
import { typeOrm, type TypeOrmTx } from "./typeorm.ts";

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

/** An open transaction of one of the supported libraries. */
export type CallerTransaction =
  PgTx | PostgresJsTx | DrizzleTx | PrismaTx | KyselyTx | KnexTx | TypeOrmTx | PgClientWithOldTypes;

/**
 * Recognizes the driver of a caller's transaction by its methods. With `isPooled`, statements are not prepared by name.
 * Throws NotInTransactionError if `tx` is not an open transaction, and TRANSACTION_ABORTED if an earlier `pg` statement in it
 * failed.
 */
export function toQueryable(tx: unknown, isPooled = false): Queryable {
  if (isOwned(tx)) return tx;
  if (isPgClient(tx)) {
    if (isPgTooOld(tx)) throw pgTooOldError();
    return createPgCaller(tx, { call: "BEGIN", isPooled });
  }
  const library = findLibrary(tx);
  if (library !== undefined) return new LibraryCaller(library, tx as object, isPooled);
  throw notInTransaction(tx);
}

interface CallerOptions {
  /** How the user opens a transaction, for the error message. */
  readonly call: string;
  readonly isPooled: boolean;
}

type PgCallerClient = LibraryClient;

function findLibrary(tx: unknown): Library | undefined {
  return isObject(tx) ? LIBRARIES.find((library) => library.isTransaction(tx)) : undefined;
}

function createPgCaller(client: PgCallerClient, { call, isPooled }: CallerOptions): Queryable {
  const status = client.getTransactionStatus();
  if (status === "T") return new PgCaller(client, isPooled);
  if (status === "E") {
    throw transactionAborted();
  }
  throw new NotInTransactionError(
    "The transaction is not open, so the message would not be rolled back with your data. " +
      `${call === "BEGIN" ? "Run BEGIN on the client first" : `Publish inside ${call}, before it returns`}, or use bus.transaction().`,
  );
}

class PgCaller implements Queryable {
  readonly borrowed = true;
  readonly #client: PgCallerClient;
  readonly #isPooled: boolean;

  constructor(client: PgCallerClient, isPooled: boolean) {
    this.#client = client;
    this.#isPooled = isPooled;
  }

  readonly isOpen = (): boolean => this.#client.getTransactionStatus() === "T";

  async run<R>(statement: Statement, params: readonly Param[] = []): Promise<Rows<R>> {
    const name = this.#isPooled ? "" : statement.preparedName;
    const query = { name, text: statement.text, values: params };
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

/** Libraries whose transactions are recognized, in the order in which their shapes are tried. */
const LIBRARIES: readonly Library[] = [drizzle, prisma, kysely, knex, typeOrm, postgresJs];

/** A transaction of a library. Its statements go to the `pg` client below if there is one. */
class LibraryCaller implements Queryable {
  readonly borrowed = true;
  readonly #library: Library;
  readonly #tx: object;
  readonly #isPooled: boolean;

  constructor(library: Library, tx: object, isPooled: boolean) {
    this.#library = library;
    this.#tx = tx;
    this.#isPooled = isPooled;
  }

  async run<R>(statement: Statement, params: readonly Param[] = []): Promise<Rows<R>> {
    const client = await this.#library.client?.(this.#tx);
    if (client !== undefined) {
      const options = { call: this.#library.call, isPooled: this.#isPooled };
      return createPgCaller(client, options).run<R>(statement, params);
    }
    try {
      const { rows, rowCount } = await this.#library.query(this.#tx, statement.text, params);
      return { rows: rows as R[], rowCount, command: "" };
    } catch (thrown) {
      const error = unwrapError(thrown);
      // Libraries name prepared statements themselves, so the name in the error does not show that this one is ours.
      if (sqlState(error) === SQLSTATE.inFailedTransaction) throw transactionAborted(error);
      throw explainReadOnly(explainPooler(error, true));
    }
  }
}

function isOwned(tx: unknown): tx is OwnedTransaction {
  return hasProperty(tx, "run") && hasProperty(tx, "commit") && hasProperty(tx, "isolation");
}

function isPgClient(tx: unknown): tx is PgCallerClient {
  // Clients of older pg versions have no getTransactionStatus. escapeIdentifier tells them from other objects with `query`.
  const isClient = hasProperty(tx, "getTransactionStatus") || hasProperty(tx, "escapeIdentifier");
  return hasProperty(tx, "query") && isClient && !hasProperty(tx, "totalCount");
}

function hasProperty(value: unknown, name: string): boolean {
  return ((typeof value === "object" && value !== null) || typeof value === "function") && name in value;
}

function notInTransaction(tx: unknown): NotInTransactionError {
  const root = isObject(tx) ? LIBRARIES.find((library) => library.isRoot(tx)) : undefined;
  if (root !== undefined) {
    return new NotInTransactionError(
      `An open transaction is needed, but got the root object of ${root.name}: the message would not be rolled back with ` +
        `your data. Open a transaction and pass what it gives: ${root.call}.`,
    );
  }
  if (hasProperty(tx, "totalCount")) {
    return new NotInTransactionError(
      "An open transaction is needed, but got a pool: the message would not be rolled back with your data. " +
        "Pass the client that ran BEGIN, or use bus.transaction().",
    );
  }
  return new NotInTransactionError(
    "The first argument is not a transaction of a supported library. Pass a pg client inside BEGIN, the transaction of " +
      `${LIBRARIES.map(({ name }) => name).join(", ")}, or the \`tx\` of bus.transaction().`,
  );
}

/**
 * Calls the listener when the open transaction of a caller ends, by COMMIT or by ROLLBACK. Returns false if the library does
 * not report the end.
 */
export function onTransactionEnd(tx: object, listener: () => void): boolean {
  const library = isPgClient(tx) ? undefined : findLibrary(tx);
  if (library !== undefined) return library.onEnd?.(tx, listener) ?? false;
  return onClientTransactionEnd(tx as LibraryClient, listener);
}
