import type { Param } from "../database.ts";
import { onClientTransactionEnd } from "./library-client.ts";
import { hasMethod, isObject, readTags } from "./library-shape.ts";
import type { Library, LibraryClient, LibraryRows, TransactionAdapter } from "./library.ts";
import { queryPostgresJs } from "./postgres-js.ts";

/** The transaction of Drizzle's node-postgres and postgres.js drivers, as far as TypeScript must tell it from `db`. */
export interface DrizzleTx {
  rollback(): never;
  setTransaction: (...args: never[]) => unknown;
  transaction: (...args: never[]) => unknown;
  execute: (...args: never[]) => unknown;
}

/** Drizzle's `db`, as far as its transactions matter. */
interface DrizzleDatabase<Tx> {
  transaction(
    work: (tx: Tx) => Promise<unknown>,
    config?: { isolationLevel?: "read committed" | "repeatable read" | "serializable" },
  ): Promise<unknown>;
}

interface DrizzleSession {
  readonly session?: { readonly client?: unknown };
}

// Drizzle names its classes by this symbol, because two copies of a package break `instanceof`.
const KIND = Symbol.for("drizzle:entityKind");
/** The first is the base class up to 0.45, the second since 1.0. */
const TRANSACTIONS: readonly unknown[] = ["PgTransaction", "PgAsyncTransaction"];
const DATABASES: readonly unknown[] = ["PgDatabase", "PgAsyncDatabase"];

function isKind(value: object, kinds: readonly unknown[]): boolean {
  return readTags(value, KIND).some((kind) => kinds.includes(kind));
}

function clientOf(tx: object): unknown {
  return (tx as DrizzleSession).session?.client;
}

function pgClientOf(tx: object): LibraryClient | undefined {
  const client = clientOf(tx);
  return isObject(client) && hasMethod(client, "getTransactionStatus")
    ? (client as unknown as LibraryClient)
    : undefined;
}

export const drizzle: Library = {
  name: "Drizzle",
  call: "db.transaction(async (tx) => …)",
  isTransaction: (value) => isKind(value, TRANSACTIONS),
  isRoot: (value) => isKind(value, DATABASES) && !isKind(value, TRANSACTIONS),
  client: pgClientOf,
  onEnd: (tx, listener) => onClientTransactionEnd(pgClientOf(tx), listener),
  query: (tx, text, params) => queryThroughSession(tx, text, params),
};

function queryThroughSession(tx: object, text: string, params: readonly Param[]): Promise<LibraryRows> {
  const client = clientOf(tx);
  if (isObject(client) && hasMethod(client, "unsafe")) return queryPostgresJs(client, text, params);
  return Promise.reject(
    new TypeError(
      "sagabox works with Drizzle's node-postgres and postgres.js drivers. This transaction belongs to another one.",
    ),
  );
}

/**
 * Lets handlers, `tx` steps and `bus.transaction()` use Drizzle: `tx` is then what `db.transaction` gives. Works with the
 * drivers node-postgres (pg 8.21 or newer) and postgres.js.
 */
export function drizzleTransactions<Tx extends object>(db: DrizzleDatabase<Tx>): TransactionAdapter<Tx> {
  return {
    name: drizzle.name,
    client: pgClientOf,
    query: (tx, text, params) => drizzle.query(tx, text, params),
    run: (work, { isolation }) => db.transaction(work, { isolationLevel: isolation }),
  };
}
